"""`fleet enqueue --batch`, `fleet batch show|wait|close|list`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.domain.execution import Finish
from fleet.domain.task import TaskStatus
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import claim_one, finish, join, row


def end_all(storage: Storage, *results: TaskStatus) -> None:
    """Claim the next tasks and end them."""
    worker = join(storage)
    for status in results:
        finish(storage, worker, Finish(claim_one(storage, worker).fence, status))


def test_batch_from_enqueue_to_its_end(fleet: Command, database: Storage) -> None:
    """Enqueue makes a missing batch, closes it, and what follows it comes when all have ended."""
    fleet(*("enqueue", "x", "--count", "3", "--batch", "b", "--then", "report", "--then-payload", '{"day": 1}'))
    shown = fleet("batch", "show", "b", "--json").document
    assert (shown["size"], shown["open"], shown["counts"], shown["callback_id"]) == (3, 3, {"pending": 3}, 1)
    assert (shown["closed_at"] is None, shown["ended_at"]) == (False, None)
    late = fleet("batch", "wait", "b", "--timeout", "0.01s")
    assert late.code == 4
    assert "batch b has not ended after 0.01 s of waiting: 3 of its 3 tasks have not" in late.err
    end_all(database, TaskStatus.DONE, TaskStatus.DONE, TaskStatus.FAILED)
    follower = row(database, 1)
    assert (follower.task, follower.status, follower.payload_json) == ("report", "pending", '{"day":1}')
    ended = fleet("batch", "wait", "b")
    assert (ended.code, ended.out) == (1, "batch b has ended: 2 done, 1 failed\n")
    assert "then     task 1" in fleet("batch", "show", "b").out


def test_wait_for_a_batch_that_succeeds(fleet: Command, database: Storage) -> None:
    """A batch whose tasks are all done is exit code 0."""
    fleet("enqueue", "x", "--batch", "b")
    end_all(database, TaskStatus.DONE)
    done = fleet("batch", "wait", "b", "--json")
    assert (done.code, done.document["counts"]) == (0, {"done": 1})


def test_batch_that_is_kept_open(fleet: Command, database: Storage, folder: Path) -> None:
    """A batch that is kept open takes more, is closed by whoever adds the last, and then no more."""
    fleet("enqueue", "x", "--batch", "b", "--keep-open")
    (folder / "jobs.jsonl").write_text('{"task": "y"}\n{"task": "z"}\n')
    fleet("enqueue", "--from", "jobs.jsonl", "--batch", "b")
    assert fleet("batch", "show", "b").out.startswith("batch b is open: 3 pending\n")
    fleet("enqueue", "x", "--batch", "b", "--then", "y").refused(2, "batch b is there already", "--then")
    assert fleet("batch", "close", "b").out == "batch b is closed\n"
    assert fleet("batch", "close", "b").out == "batch b was closed already\n"
    fleet("enqueue", "x", "--batch", "b").refused(1, "batch b is closed")


def test_batch_left_open_by_a_bad_line(fleet: Command, database: Storage, folder: Path) -> None:
    """Where a late line fails, the batch stays open for the rest, and that is said."""
    (folder / "jobs.jsonl").write_text('{"task": "x"}\n' * 1000 + "{\n")
    failed = fleet("enqueue", "--from", "jobs.jsonl", "--batch", "b", "--then", "report")
    assert failed.code == 2
    assert "batch b is left open: give --batch b with the rest, then run fleet batch close b" in failed.err
    batch = database.rules.batch("b")
    assert batch is not None
    assert (batch.size, batch.closed_at) == (1000, None)


def test_batch_of_an_empty_file(fleet: Command, database: Storage, folder: Path) -> None:
    """A batch without tasks ends at once, and is followed."""
    (folder / "none.jsonl").touch()
    assert fleet("enqueue", "--from", "none.jsonl", "--batch", "b", "--then", "report").code == 0
    assert fleet("batch", "wait", "b").out == "batch b has ended: no tasks\n"
    assert row(database, 1).status is TaskStatus.PENDING


def test_batches_are_listed(fleet: Command, database: Storage) -> None:
    """The list has a line for each batch, with its counts."""
    assert fleet("batch", "list").out == "no batches\n"
    fleet("enqueue", "x", "--batch", "a", "--count", "2")
    fleet("enqueue", "x", "--batch", "b")
    end_all(database, TaskStatus.DONE)
    assert {row["batch_id"]: row["counts"] for row in fleet("batch", "list", "--json").document} == {
        "a": {"pending": 1, "done": 1},
        "b": {"pending": 1},
    }
    assert fleet("batch", "list", "--limit", "1").out.count("\n") == 2


@pytest.mark.parametrize("command", ["show", "wait", "close"])
def test_unknown_batch(fleet: Command, database: Storage, command: str) -> None:
    """An unknown batch is one line and exit code 1."""
    fleet("batch", command, "nothing").refused(1, "batch nothing")
