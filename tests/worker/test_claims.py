"""Claiming and recording by one worker, in a real store."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.execution import Failure, Withdrawal
from fleet.domain.lanes import Offer
from fleet.domain.task import NewTask, TaskStatus
from fleet.errors import DatabaseError
from fleet.storage.interfaces import Storage
from fleet.worker import claims as module
from fleet.worker.lanes import LearnedLanes
from tests.storage.samples import enqueue, enqueue_one, row, statuses
from tests.worker.desk import OFFER, SETTINGS, Desk, executed, refuse

# Lanes


def test_lanes_are_learned_as_they_come(memory: Storage) -> None:
    """Only lanes that the worker serves are claimed from, and new ones are learned without losing the old."""
    lanes = LearnedLanes(OFFER, weighted=False)
    enqueue(memory, NewTask("t"), NewTask("other"))
    lanes.learn(memory.queue)
    [first] = lanes.to_claim()
    enqueue_one(memory, queue="q")
    lanes.learn(memory.queue)
    assert len(lanes.ids) == 2
    assert lanes.to_claim()[0] == first


def test_known_lanes_are_not_read_again(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that tells of no newer lane costs no read."""
    lanes = LearnedLanes(OFFER, weighted=False)
    enqueue_one(memory)
    lanes.learn(memory.queue)
    [newest] = lanes.ids
    monkeypatch.setattr(type(memory.queue), "lanes", refuse)
    lanes.learn(memory.queue, newest)
    with pytest.raises(DatabaseError):
        lanes.learn(memory.queue, newest + 1)


@pytest.mark.parametrize(("offered", "waits"), [({}, True), ({"gpu": 1.0}, False)])
def test_who_is_not_preferred_knows_it(memory: Storage, offered: dict[str, float], waits: bool) -> None:
    """A lane whose tasks wait a moment for other workers is known as such by those that are not preferred."""
    lanes = LearnedLanes(Offer("w", frozenset({"t"}), (), offered), weighted=False)
    enqueue_one(memory, prefers={"gpu": 1.0})
    lanes.learn(memory.queue)
    assert lanes.has_preferring is waits


# Recording


def test_what_was_executed_is_recorded_with_the_next_claim(desk: Desk) -> None:
    """One commit writes how the batch ended and claims the next, which shared memory then holds."""
    enqueue(desk.store, *[NewTask("t")] * 4)
    tasks = desk.claim(3)
    outcomes = ("1", Failure("ValueError", "it broke", final=True), Withdrawal(TaskStatus.CANCELLED, "not needed"))
    desk.claims.executed = [executed(task, outcome) for task, outcome in zip(tasks, outcomes, strict=True)]
    [following] = desk.claim(3)
    assert statuses(desk.store, [task.task_id for task in tasks]) == ["done", "failed", "cancelled"]
    assert row(desk.store, following.task_id).status is TaskStatus.RUNNING
    reading = desk.slot.read()
    assert reading is not None
    assert reading.held == (following.fence,)
    assert (desk.claims.recorded, desk.counted, desk.claims.executed) == (3, (1, 1), [])


def test_a_result_of_a_lost_claim_is_dropped_and_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A result whose claim is gone changes nothing, is not counted, and is named in the log (DX04)."""
    claimed = desk.claim_one()
    desk.lose(claimed)
    desk.claims.executed = [executed(claimed)]
    desk.claims.record()
    assert row(desk.store, claimed.task_id).status is TaskStatus.PENDING
    assert desk.counted == (0, 0)
    assert f"claim {claimed.claim_token} of task {claimed.task_id} was lost" in caplog.text


def test_what_the_keeper_has_recorded_is_counted(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Ends that the keeper has taken from a batch that lasted are no lost claims: they count as the worker's."""
    enqueue(desk.store, *[NewTask("t")] * 2)
    first, second = desk.claim(2)
    desk.store.queue.finish_and_claim(desk.member.claimant, [executed(first).finish(0.0, lambda: 0.5)], (), 0)
    desk.claims.executed = [executed(first)]
    assert desk.claims.note()
    desk.slot.taken = 1
    desk.claims.executed.append(executed(second))
    desk.claims.record()
    assert desk.counted == (2, 0)
    assert caplog.text == ""


def test_what_cannot_be_recorded_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the database has not answered for as long as the worker is patient, the log names what is lost (LK04)."""
    claimed = desk.claim_one()
    desk.member.patience = 0.0
    desk.claims.executed = [executed(claimed)]
    monkeypatch.setattr(type(desk.store.queue), "finish_and_claim", refuse)
    with pytest.raises(DatabaseError):
        desk.claims.record()
    assert f"could not be recorded and is lost: {claimed.task_id} (no answer)" in caplog.text


# Claiming


def test_a_claim_that_fails_is_no_claim(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose claim is not answered goes on without tasks; the log says so."""
    monkeypatch.setattr(type(desk.store.queue), "claim", refuse)
    assert desk.claims.next(1) == ((), None)
    assert "claiming failed: no answer" in caplog.text


def test_what_was_lost_before_the_answer_came_is_not_executed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a claim's answer took longer than half a heartbeat, only what is still held is executed (DX07)."""
    enqueue(desk.store, *[NewTask("t")] * 2)
    claim = type(desk.store.queue).claim
    now = 0.0

    def claim_slowly(queue: Any, *given: Any, **more: Any) -> Any:
        nonlocal now
        reply = claim(queue, *given, **more)
        desk.lose(reply.tasks[0])
        now += SETTINGS.heartbeat
        return reply

    monkeypatch.setattr(module, "boottime", lambda: now)
    monkeypatch.setattr(type(desk.store.queue), "claim", claim_slowly)
    tasks = desk.claim(2)
    reading = desk.slot.read()
    assert reading is not None
    assert reading.held == tuple(task.fence for task in tasks)
    assert [row(desk.store, task.task_id).status for task in tasks] == [TaskStatus.RUNNING]


def test_what_cannot_be_given_back_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that drains while the database does not answer goes all the same: leaving the registry returns it."""
    claimed = desk.claim_one()
    with monkeypatch.context() as broken:
        broken.setattr(type(desk.store.queue), "release", refuse)
        desk.claims.give_back([claimed], "the worker drains")
    assert "giving back 1 tasks failed: no answer" in caplog.text
    desk.claims.give_back([claimed], "the worker drains")
    task = row(desk.store, claimed.task_id)
    assert (task.status, task.attempt, task.interruptions) == (TaskStatus.PENDING, 0, 0)
