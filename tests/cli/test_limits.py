"""`fleet limit set`, `fleet limit list`, `fleet limit remove`."""

from __future__ import annotations

import pytest

from fleet.domain.limits import Limit
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import enqueue_one, statuses


def test_limit_holds_back_and_lets_go(fleet: Command, database: Storage) -> None:
    """A limit applies to what waits already; without it everything may run again."""
    ids = [enqueue_one(database, concurrency_key="api") for _ in range(3)]
    assert fleet("limit", "set", "api", "--running", "1").out == "limit api: at most 1 running\n"
    assert statuses(database, ids) == ["pending", "blocked", "blocked"]
    (row,) = fleet("limit", "list", "--json").document
    assert row == {
        "key": "api",
        "max_running": 1,
        "rate": None,
        "per_seconds": None,
        "burst": None,
        "use": [{"key": "api", "running": 0, "pending": 1, "blocked": 2, "next_allowed_at": None}],
    }
    assert fleet("limit", "remove", "api").out == "limit api is removed\n"
    assert statuses(database, ids) == ["pending"] * 3
    fleet("limit", "remove", "api").refused(1, "limit api: there is none")


@pytest.mark.parametrize(
    ("rate", "number", "seconds"), [("10/60s", 10, 60), ("10/m", 10, 60), ("0.5/2", 0.5, 2), ("3/1h", 3, 3600)]
)
def test_rates(fleet: Command, database: Storage, rate: str, number: float, seconds: float) -> None:
    """A rate is a number of starts and a time."""
    assert fleet("limit", "set", "mail:*", "--rate", rate, "--burst", "2").code == 0
    assert database.rules.limits() == (Limit("mail:*", None, number, seconds, 2),)
    assert fleet("limit", "list").out.splitlines()[1].startswith("mail:*")


def test_setting_replaces(fleet: Command, database: Storage) -> None:
    """A later setting stands in place of the earlier one, and is printed whole."""
    fleet("limit", "set", "k", "--running", "3", "--rate", "10/m")
    assert fleet("limit", "set", "k", "--rate", "5/s", "--json").document["max_running"] is None
    assert database.rules.limits() == (Limit("k", None, 5, 1),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("k",), "give a number of running tasks, a rate, or both"),
        (("k", "--running", "-1"), "running -1"),
        (("k", "--burst", "2"), "give a number of running tasks"),
        (("k", "--running", "1", "--burst", "2"), "burst 2"),
        (("k", "--rate", "10"), "write starts/time"),
        (("k", "--rate", "10/soon"), "write starts/time"),
        (("k", "--rate", "nan/1s"), "more than 0 of both"),
        (("k", "--rate", "0/1s"), "more than 0 of both"),
        (("k", "--rate", "1/0"), "more than 0 of both"),
        (("k", "--rate", "inf/1s"), "1000"),
        (("k", "--rate", "5000/1s"), "1000"),
        (("", "--running", "1"), "key: give 1 to 500"),
        (("a\nb", "--running", "1"), "key: give 1 to 500"),
    ],
)
def test_senseless_limits(fleet: Command, database: Storage, arguments: tuple[str, ...], words: str) -> None:
    """A limit that limits nothing, or makes no sense, is refused in one line."""
    fleet("limit", "set", *arguments).refused(2, words)
    assert database.rules.limits() == ()


def test_no_limits(fleet: Command, database: Storage) -> None:
    """Without limits the list says so."""
    assert fleet("limit", "list").out == "no limits\n"
