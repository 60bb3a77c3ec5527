"""Recording a success in the transaction that its handler has left open."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from fleet.domain.execution import ClaimedTask, Failure
from fleet.domain.task import TaskStatus
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from fleet.worker.executor import Execution
from fleet.worker.own_task import OwnTask
from tests.storage.samples import execute, row
from tests.worker.desk import Desk, executed, refuse


def opened(desk: Desk, claimed: ClaimedTask, statement: str = "UPDATE fleet_meta SET value = value") -> OwnTask:
    """Return a task's rows, with a transaction open in which its handler has written."""
    own = desk.claims.own_task(claimed)
    own.open_transaction().connection.execute(text(statement))
    return own


def complete(desk: Desk, claimed: ClaimedTask, own: OwnTask) -> Execution | None:
    """Complete a success; return what is left to be recorded."""
    completion = desk.claims.completion(executed(claimed), own)
    return completion.execution if desk.claims.take(completion) else None


def test_a_success_is_recorded_in_its_own_transaction(desk: Desk) -> None:
    """The handler's transaction is the completion's; nothing is left to record."""
    claimed = desk.claim_one()
    assert complete(desk, claimed, opened(desk, claimed)) is None
    assert row(desk.store, claimed.task_id).status is TaskStatus.DONE
    assert (desk.claims.recorded, desk.counted) == (1, (1, 0))
    [[*_, done, failed, _, _]] = desk.claims.tally.take()
    assert (done, failed) == (1, 0)


def test_a_success_whose_claim_is_gone_counts_for_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """The handler's transaction is undone with the result, the log says so, and nothing is left to record (DX04)."""
    claimed = desk.claim_one()
    desk.lose(claimed)
    assert complete(desk, claimed, opened(desk, claimed)) is None
    assert row(desk.store, claimed.task_id).status is TaskStatus.PENDING
    assert desk.counted == (0, 0)
    assert desk.store.control.finished_since(600) == {"done": 0, "failed": 0}
    assert "its result and its transaction are dropped" in caplog.text


def test_a_transaction_that_cannot_commit_is_a_failure(sqlite_file: Storage, caplog: pytest.LogCaptureFixture) -> None:
    """What the database refuses at the commit becomes a failed attempt, to be recorded like any other; nothing of the
    transaction stays, and the next one is served."""
    execute(sqlite_file, "CREATE TABLE a (id INTEGER PRIMARY KEY)")
    execute(sqlite_file, "CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)")
    desk = Desk(sqlite_file)
    claimed = desk.claim_one()
    own = opened(desk, claimed, "INSERT INTO b VALUES (7)")
    left = complete(desk, claimed, own)
    assert left is not None
    assert isinstance(left.outcome, Failure)
    assert (left.outcome.kind, left.outcome.final) == ("IntegrityError", False)
    assert left.outcome.error.startswith("its transaction could not be committed: ")
    assert "\n" not in left.outcome.error
    [message] = [record.getMessage() for record in caplog.records]
    assert message == f"the transaction of task {claimed.task_id} was undone: {left.outcome.error.partition(': ')[2]}"
    assert not own.has_transaction
    assert execute(sqlite_file, "SELECT * FROM b") == []
    desk.claims.executed = [left]
    desk.claims.record()
    assert row(sqlite_file, claimed.task_id).status is TaskStatus.SCHEDULED


def test_a_database_that_fails_inside_the_transaction_is_a_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even the completion cannot be written, its transaction is undone and the attempt has failed."""
    claimed = desk.claim_one()
    own = opened(
        desk,
        claimed,
        "INSERT INTO fleet_event (at, kind, subject, text) SELECT created_at, 'note', 'own', 'x' FROM work_queue",
    )
    with monkeypatch.context() as broken:
        broken.setattr(type(desk.store.queue), "finish_and_claim", refuse)
        left = complete(desk, claimed, own)
    assert left is not None
    assert left.failed
    assert row(desk.store, claimed.task_id).status is TaskStatus.RUNNING
    assert execute(desk.store, "SELECT 1 FROM fleet_event WHERE kind = 'note'") == []


def test_a_transaction_is_closed_once(desk: Desk) -> None:
    """After it was rolled back there is nothing to complete or to undo, and a new one may be opened."""
    claimed = desk.claim_one()
    own = opened(desk, claimed)
    own.roll_back()
    own.roll_back()
    with pytest.raises(UsageError, match="no transaction is open"):
        own.complete(executed(claimed).finish(0.0, lambda: 0.5))
    own.open_transaction()
    assert own.has_transaction
    own.roll_back()
