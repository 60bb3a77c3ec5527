"""What a worker finished is counted in the commit that records it, or in one soon after."""

from __future__ import annotations

import sqlite3

import pytest

from fleet.domain.execution import Failure
from fleet.domain.task import NewTask, TaskStatus
from fleet.errors import DatabaseError
from fleet.storage.queue import work_queue
from fleet.worker import tally
from fleet.worker.tally import LONGEST_UNWRITTEN, MOST_UNWRITTEN
from tests.storage.samples import enqueue, row
from tests.worker.desk import Desk, executed


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The boot time of recording, which stands still."""
    now = [tally.boottime()]
    monkeypatch.setattr("fleet.worker.claims.boottime", lambda: now[0])
    return now


def finished(desk: Desk) -> tuple[int, int]:
    """Return how many tasks the database counts as done and failed."""
    found = desk.store.control.finished_since(600)
    return found["done"], found["failed"]


def test_a_batch_is_counted_in_its_own_commit(desk: Desk) -> None:
    """A batch is counted when it is recorded, with what was left of earlier ones, and only once."""
    enqueue(desk.store, *[NewTask("t")] * (MOST_UNWRITTEN + 3))
    first = desk.claim(MOST_UNWRITTEN)
    desk.claims.executed = [
        executed(task, Failure("E", "no", final=True) if task is first[0] else "1") for task in first
    ]
    rest = desk.claim(3)
    assert finished(desk) == (MOST_UNWRITTEN - 1, 1)
    desk.claims.executed = [executed(task) for task in rest]
    desk.claims.record()
    assert finished(desk) == (MOST_UNWRITTEN + 2, 1)
    assert desk.claims.tally.take() == []


def test_single_tasks_are_counted_together(desk: Desk, time: list[float]) -> None:
    """Of tasks recorded one by one in quick succession the counts of a few are written with a later one."""
    enqueue(desk.store, *[NewTask("t")] * 30)
    seen = []
    [task] = desk.claim(1)
    for _ in range(MOST_UNWRITTEN + 1):
        desk.claims.executed = [executed(task)]
        [task] = desk.claim(1)
        seen.append(finished(desk)[0])
    assert seen == [0] * (MOST_UNWRITTEN - 1) + [MOST_UNWRITTEN] * 2


def test_counts_do_not_wait_long(desk: Desk, time: list[float]) -> None:
    """A task that is recorded some time after the last counts were written is counted in its own commit."""
    enqueue(desk.store, *[NewTask("t")] * 3)
    [task] = desk.claim(1)
    for passed, counted in ((LONGEST_UNWRITTEN / 2, 0), (LONGEST_UNWRITTEN, 2)):
        time[0] += passed
        desk.claims.executed = [executed(task)]
        [task] = desk.claim(1)
        assert finished(desk) == (counted, 0)


def test_the_last_task_is_counted_at_once(desk: Desk, time: list[float]) -> None:
    """Before a worker becomes idle everything it did is counted."""
    task = desk.claim_one()
    desk.claims.executed = [executed(task)]
    assert desk.claim(1) == ()
    assert finished(desk) == (1, 0)


def test_a_lost_claim_is_not_counted(desk: Desk) -> None:
    """Of a batch only the tasks are counted whose claims still stood."""
    enqueue(desk.store, *[NewTask("t")] * 2)
    tasks = desk.claim(2)
    desk.lose(tasks[0])
    desk.claims.executed = [executed(task) for task in tasks]
    desk.claims.record()
    assert finished(desk) == (1, 0)
    assert desk.claims.tally.take() == []


def test_counts_of_an_undone_transaction_are_not_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the commit that should have counted a batch comes to nothing, the next one counts it, once."""
    task = desk.claim_one()
    desk.claims.executed = [executed(task)]

    def fail(*_: object) -> None:
        raise ConnectionError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(work_queue, "_finish_and_claim", fail)
        with pytest.raises((ConnectionError, DatabaseError)):
            desk.claims._finish_and_claim(desk.claims.executed, 0)
    assert finished(desk) == (0, 0)
    desk.claims.record()
    assert finished(desk) == (1, 0)


def test_statistics_that_cannot_be_written_hold_up_no_task(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A task is recorded without its statistics where those cannot be written, and the log says so; later ones are
    counted again."""
    enqueue(desk.store, *[NewTask("t")] * 2)
    first, second = desk.claim(2)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("no such table: work_minute")

    with monkeypatch.context() as broken:
        broken.setattr(work_queue.minutes, "add", fail)
        desk.claims.executed = [executed(first)]
        desk.claims.record()
    assert row(desk.store, first.task_id).status is TaskStatus.DONE
    assert "statistics of tasks were not stored: no such table: work_minute" in caplog.text
    desk.claims.executed = [executed(second)]
    desk.claims.record()
    assert finished(desk) == (1, 0)


def test_what_the_keeper_recorded_is_told(desk: Desk) -> None:
    """Tasks of a batch that the keeper has recorded meanwhile are told to it with the next heartbeat."""
    enqueue(desk.store, *[NewTask("t")] * 3)
    tasks = desk.claim(3)
    ended = [executed(task) for task in tasks[:2]]
    finishes = [one.finish(0.0, lambda: 0.5) for one in ended]
    desk.store.queue.finish_and_claim(desk.member.claimant, finishes, (), 0)
    for one in ended:
        desk.claims.executed.append(one)
        assert desk.claims.note()
    desk.slot.taken = 2
    desk.claims.executed.append(executed(tasks[2]))
    desk.claims.record()
    assert finished(desk) == (1, 0)
    [[queue, name, done, failed, _, _]] = desk.claims.tally.take()
    assert (queue, name, done, failed) == ("default", "t", 2, 0)
