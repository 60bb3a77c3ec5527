"""The transaction that a handler opens for its last step, and that the completion closes."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
from sqlalchemy import text

from fleet import Fleet
from fleet.domain.execution import Finish, done
from fleet.domain.task import TaskStatus
from fleet.errors import UsageError
from fleet.worker import own_task as module
from tests.storage.samples import execute
from tests.worker.conftest import Held

NOTE = "INSERT INTO fleet_event (at, kind, subject, text) SELECT created_at, 'note', 'own', 'x' FROM work_queue LIMIT 1"
"""Any row that no other part of the product writes stands for a handler's own."""


def write(held: Held) -> None:
    """Write a handler's own row in its transaction."""
    with held.context.transaction() as connection:
        connection.execute(text(NOTE))


def notes(held: Held) -> int:
    """Return how many such rows are there."""
    return len(execute(held.store, "SELECT 1 FROM fleet_event WHERE kind = 'note'"))


def success(held: Held) -> Finish:
    """Return that the task was done."""
    return done(held.claimed, "1", 0.1, 0.1)


def test_effects_and_completion_commit_together(held_anywhere: Held) -> None:
    """Neither is there before the completion, and both are afterwards."""
    held = held_anywhere
    write(held)
    assert held.own.has_transaction
    assert held.own.complete(success(held))
    assert not held.own.has_transaction
    assert held.row().status is TaskStatus.DONE
    assert notes(held) == 1


def test_nothing_stays_of_a_failed_handler(held_anywhere: Held) -> None:
    """What was written is undone when the handler fails after its block; the task is still its own to record."""
    held = held_anywhere
    write(held)
    held.own.roll_back()
    assert notes(held) == 0
    assert held.row().status is TaskStatus.RUNNING


def test_nothing_stays_of_a_block_that_fails(held_anywhere: Held) -> None:
    """An exception that leaves the block undoes it at once, and is the handler's to handle."""
    held = held_anywhere
    with suppress(ZeroDivisionError), held.context.transaction() as connection:
        connection.execute(text(NOTE))
        raise ZeroDivisionError
    assert not held.own.has_transaction
    assert notes(held) == 0


def test_nothing_stays_of_a_lost_claim(held_anywhere: Held) -> None:
    """When the claim turns out to be gone, neither effects nor completion are written (DX04)."""
    held = held_anywhere
    held.lose()
    write(held)
    assert not held.own.complete(success(held))
    assert notes(held) == 0
    assert held.row().status is TaskStatus.PENDING


def test_a_second_transaction_is_refused(held_on_disk: Held) -> None:
    """A task has one transaction, for its last step: neither another nor a step comes after it, nor is begun."""
    held, begun = held_on_disk, []
    write(held)
    with pytest.raises(UsageError, match="one is open already"):
        held.own.open_transaction()
    with pytest.raises(UsageError, match="make it the last step"):
        held.context.step("late", lambda: begun.append(1))
    with pytest.raises(UsageError, match="make it the last step"):
        held.context.checkpoint(1)
    assert begun == []
    held.own.roll_back()


def test_progress_does_not_wait_for_its_own_transaction(held_on_disk: Held) -> None:
    """Progress inside the transaction is not written: it would wait for the very transaction that it reports from."""
    held = held_on_disk
    write(held)
    held.context.progress(1.0, "nearly")
    assert not held.context.should_stop
    assert held.own.complete(success(held))
    assert held.row().progress is None


@pytest.mark.parametrize(("seconds", "told"), [(0.99, 0), (1.0, 0), (1.01, 1)])
def test_a_long_transaction_is_told_of(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seconds: float, told: int
) -> None:
    """One that was held longer than a second is named in a warning."""
    now = 0.0
    monkeypatch.setattr(module, "boottime", lambda: now)
    write(held)
    now = seconds
    with caplog.at_level(logging.WARNING, "fleet.worker"):
        assert held.own.complete(success(held))
    assert len([record for record in caplog.records if "held a transaction for" in record.message]) == told


def test_another_fleet_object_does_not_wait_for_it(held_on_disk: Held, app: Fleet) -> None:
    """A task enqueued inside the block by another connection is refused at once: it would wait for this transaction."""
    held = held_on_disk
    write(held)
    with pytest.raises(UsageError, match="this thread has a transaction open"):
        app.enqueue("t")
    held.own.roll_back()
    assert app.enqueue("t").status() == "pending"
