"""The same commands on PostgreSQL."""

from __future__ import annotations

import pytest

from fleet.domain.group import NewGroup
from fleet.domain.task import HandlerDefaults
from fleet.process import identify
from fleet.storage.schema import REVISION
from tests.cli.conftest import Command
from tests.cli.test_registry import register
from tests.databases import opened


@pytest.fixture(autouse=True)
def location(postgres_url: str, folder: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name the server's database in the environment."""
    monkeypatch.setenv("FLEET_DB", postgres_url)
    return postgres_url


def test_queue_on_a_server(fleet: Command) -> None:
    """Enqueue, list and show give the same documents as on SQLite."""
    done = fleet("enqueue", "count", "--payload", '{"path": "é"}', "--requires", "gpu=2", "--count", "2", "--json")
    first, second = done.document["ids"]
    assert (second, done.document["existing"]) == (first + 1, [])
    listed = fleet("tasks", "--json").document
    assert [(row["id"], row["status"], row["requires"]) for row in listed] == [
        (second, "pending", {"gpu": 2}),
        (first, "pending", {"gpu": 2}),
    ]
    shown = fleet("task", "show", first, "--json").document
    assert shown["payload"] == {"path": "é"}
    assert len(shown["created_at"]) == len("2026-01-01T00:00:00.000Z")
    assert fleet("task", "wait", first, "--timeout", "0").code == 4


def test_orders_on_a_server(fleet: Command) -> None:
    """Dependencies, batches, limits, pauses and orders are as on SQLite; times are texts."""
    first, second = fleet("enqueue", "x", "--count", "2", "--concurrency-key", "k", "--json").document["ids"]
    (child,) = fleet("enqueue", "y", "--depends-on", first, "--batch", "b", "--then", "z", "--json").document["ids"]
    assert fleet("limit", "set", "k", "--running", "1", "--rate", "10/m").code == 0
    (limit,) = fleet("limit", "list", "--json").document
    assert [(use["pending"], use["blocked"]) for use in limit["use"]] == [(1, 1)]
    assert fleet("pause", "default", "--for", "1h").code == 0
    (queue,) = fleet("queues", "--json").document
    assert (queue["pending"], queue["blocked"], queue["paused"]) == (1, 3, True)
    assert queue["paused_until"].endswith("Z")
    assert fleet("task", "cancel", first, second).code == 0
    shown = fleet("task", "show", child, "--json").document
    assert (shown["status"], [parent["status"] for parent in shown["parents"]]) == ("cancelled", ["cancelled"])
    assert fleet("batch", "wait", "b", "--timeout", "0").out == "batch b has ended: 1 cancelled\n"
    assert fleet("task", "retry", first).code == 0
    assert fleet("task", "show", first, "--json").document["status"] == "pending"
    assert fleet("task", "retry", "--all", "--queue", "default").out == "0 tasks are in the queue again\n"
    assert fleet("resume", "default").out == "queue default is resumed\n"


def test_registry_on_a_server(fleet: Command, location: str) -> None:
    """Workers, groups, handlers and status are read as on SQLite; numbers are numbers and times are texts."""
    storage = opened(location)
    register(storage, "w", capabilities={"gpu": 1})
    storage.control.add_group(NewGroup("g", "default", 1, "token", identify(), 20, {}))
    storage.queue.declare_handlers([HandlerDefaults("count", "q", {"gpu": 1}, 5, 30.0, None, "(path)")])
    storage.close()
    (worker,) = fleet("workers", "--json").document
    assert (worker["state"], worker["capabilities"], worker["handlers"]) == ("ready", {"gpu": 1}, ["count"])
    assert isinstance(worker["heartbeat_age_seconds"], float)
    assert worker["started_at"].endswith("Z")
    assert fleet("groups", "--json").document[0]["status"] == "running"
    assert "count" in {row["name"] for row in fleet("handlers", "--json").document}
    status = fleet("status", "--json")
    assert (status.code, status.document["workers"]["ready"]) == (0, 1)


def test_schema_on_a_server(fleet: Command) -> None:
    """`init` finds the tables there; `db current` names the schema."""
    assert fleet("init", "--json").document["schema"] == REVISION
    assert fleet("db", "current", "--json").document["schema"] == REVISION
    assert fleet("db", "upgrade", "--json").document["changed"] is False


@pytest.mark.parametrize("address", ["h:port/d", "[::1/d", "h:5x/d"])
def test_an_url_that_cannot_be_read_is_one_line(fleet: Command, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """A URL with a port that is no number, or a broken address, is one line without its password."""
    monkeypatch.setenv("FLEET_DB", f"postgresql+psycopg://u:secret@{address}")
    done = fleet("status")
    done.refused(2, "the URL cannot be read")
    assert "secret" not in done.err
