"""Every write about a claim names it: a write whose claim is gone changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from fleet.domain.execution import Claimant, ClaimedTask, Fence
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    all_lanes,
    claim_one,
    dead,
    enqueue_one,
    everybody,
    execute,
    failure,
    finish,
    join,
    process,
    row,
    running_task,
    success,
)


@dataclass(frozen=True)
class Writer:
    """Who writes about a claim, rightly or not."""

    store: Storage
    who: Claimant
    task: ClaimedTask

    def finish(self) -> bool:
        """Record a success."""
        return bool(finish(self.store, self.who, success(self.task)))

    def fail(self) -> bool:
        """Record a final failure."""
        return bool(finish(self.store, self.who, failure(self.task, final=True)))

    def retry(self) -> bool:
        """Record a failure that is tried again."""
        return bool(finish(self.store, self.who, failure(self.task)))

    def finish_in_batch(self) -> bool:
        """Record a success together with one of a task that never was."""
        stranger = self.task._replace(task_id=99_999)
        return bool(finish(self.store, self.who, success(self.task), success(stranger)))

    def start(self) -> bool:
        """Stamp the start."""
        return self.store.queue.start(self.who, self.task.fence)

    def release(self) -> bool:
        """Give the task back."""
        return bool(self.store.queue.release(self.who.incarnation, [self.task.fence], interrupted=False, reason="x"))

    def interrupt(self) -> bool:
        """Give the task back as interrupted."""
        return bool(self.store.queue.release(self.who.incarnation, [self.task.fence], interrupted=True, reason="x"))

    def progress(self) -> bool:
        """Store progress."""
        return self.store.queue.progress(self.who.incarnation, self.task.fence, 0.9, "nearly")


VERBS: dict[str, Callable[[Writer], bool]] = {
    name: getattr(Writer, name)
    for name in ("finish", "fail", "retry", "finish_in_batch", "start", "release", "interrupt", "progress")
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def assert_refused(store: Storage, verb: Callable[[Writer], bool], who: Claimant, task: ClaimedTask) -> None:
    """Check that the verb answers no and leaves the row as it was."""
    before = row(store, task.task_id)
    assert not verb(Writer(store, who, task))
    assert row(store, task.task_id) == before


@every_verb
def test_a_valid_claim_is_written(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """The holder of a claim may write about it."""
    who, task = running_task(store)
    assert verb(Writer(store, who, task))


@every_verb
def test_a_claim_that_another_has_taken_is_refused(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """After a worker was lost and another claimed its task, a late write changes nothing (DX04, DX07)."""
    who, task = running_task(store, "slow")
    store.control.rescue(None, everybody)
    execute(store, "UPDATE work_queue SET status = 'pending', avoid_worker = NULL")
    claim_one(store, join(store, "quick"))
    assert_refused(store, verb, who, task)


@every_verb
def test_an_older_claim_of_the_same_worker_is_refused(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """A worker that claimed a task a second time cannot write with its first claim (DX07)."""
    who, task = running_task(store)
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    again = claim_one(store, who)
    assert again.claim_token > task.claim_token
    assert_refused(store, verb, who, task)


@every_verb
def test_a_task_in_the_queue_takes_no_write(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """After a release nobody may write about the task until it is claimed again."""
    who, task = running_task(store)
    store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    assert_refused(store, verb, who, task)


@every_verb
@pytest.mark.parametrize("end", ["done", "failed", "scheduled"])
def test_an_ended_claim_takes_no_write(store: Storage, verb: Callable[[Writer], bool], end: str) -> None:
    """After its end was written, no further write of the same claim changes a task (DX16, ST07)."""
    who, task = running_task(store)
    finish(store, who, {"done": success(task), "failed": failure(task, final=True), "scheduled": failure(task)}[end])
    assert row(store, task.task_id).status == end
    assert_refused(store, verb, who, task)


@every_verb
def test_another_incarnation_is_refused(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """The right token in another life's hand is not the claim."""
    who, task = running_task(store)
    assert_refused(store, verb, replace(who, incarnation="another life"), task)


@every_verb
def test_a_task_that_is_gone_takes_no_write(store: Storage, verb: Callable[[Writer], bool]) -> None:
    """A write about a task that was deleted is an answer, not an error."""
    who, task = running_task(store)
    execute(store, "DELETE FROM work_queue")
    assert not verb(Writer(store, who, task))


def test_a_batch_is_accepted_by_its_valid_part(store: Storage) -> None:
    """Of many ends in one call those with a claim are written, the others are not, and the reply tells which."""
    who = join(store)
    store.queue.enqueue([NewTask("t")] * 3)
    first, second, third = store.queue.claim(who, all_lanes(store), 3).tasks
    store.queue.release(who.incarnation, [second.fence], interrupted=False, reason="x")
    reply = store.queue.finish_and_claim(who, [success(each) for each in (first, second, third)], (), 0)
    assert reply.accepted == {first.fence, third.fence}
    assert row(store, second.task_id).status == "pending"


def test_the_same_end_twice_in_one_call_counts_once(store: Storage) -> None:
    """A doubled end in one call completes the task once."""
    who, task = running_task(store)
    reply = store.queue.finish_and_claim(who, [success(task), success(task)], (), 0)
    assert reply.accepted == {task.fence}


def test_a_late_result_counts_while_the_claim_stands(store: Storage) -> None:
    """A result after the lease's end is accepted as long as nobody rescued the task: the token decides (LK04)."""
    who, task = running_task(store)
    age(store, 3_600)
    assert finish(store, who, success(task)) == 1


def test_an_ending_worker_charges_its_own_claim_alone(store: Storage) -> None:
    """The charged task of a worker's end is written with its fence: another's claim stays as it is."""
    who, task = running_task(store, "slow")
    store.control.rescue(None, dead(100))
    execute(store, "UPDATE work_queue SET status = 'pending', avoid_worker = NULL")
    quick = join(store, "quick", process=process(200))
    claim_one(store, quick)
    before = row(store, task.task_id)
    slow = join(store, "slow", process=process(300))
    store.registry.end("slow", slow.incarnation, reason="died", charged=task.fence, failure=failure(task, final=True))
    assert row(store, task.task_id) == before
    assert not store.registry.end("slow", who.incarnation, reason="x", charged=task.fence, failure=failure(task))
    assert row(store, task.task_id) == before


def test_an_ending_worker_is_charged_with_what_it_executed(store: Storage) -> None:
    """Of all that a dying worker holds, the task that it executed is charged and the others are not (RT08)."""
    who = join(store)
    store.queue.enqueue([NewTask("t")] * 3)
    first, second, third = store.queue.claim(who, all_lanes(store), 3).tasks
    assert store.registry.end("w", who.incarnation, reason="killed", charged=second.fence, failure=failure(second))
    charged = row(store, second.task_id)
    assert (charged.status, charged.attempt, charged.error) == ("scheduled", 1, "it broke")
    for innocent in (first, third):
        record = row(store, innocent.task_id)
        assert (record.status, record.attempt) == ("pending", 0)


def test_a_dying_worker_on_the_last_attempt_fails_its_task(store: Storage) -> None:
    """A task that killed its worker at its last attempt ends as failed with the reason (RT04, RT05)."""
    who, task = running_task(store, max_attempts=1)
    store.registry.end("w", who.incarnation, reason="killed", charged=task.fence, failure=failure(task))
    record = row(store, task.task_id)
    assert (record.status, record.error) == ("failed", "it broke")


def test_progress_is_kept_from_the_next_claim(store: Storage) -> None:
    """Progress of an execution that was given back does not show as progress of the next one."""
    who, task = running_task(store)
    store.queue.progress(who.incarnation, task.fence, 0.9, "nearly")
    store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    again = claim_one(store, who)
    assert row(store, again.task_id).progress is None


def test_fences_are_values() -> None:
    """Two fences of the same claim are the same."""
    assert Fence(1, 2) == Fence(1, 2) != Fence(1, 3)
    assert len({Fence(1, 2), Fence(1, 2)}) == 1


def test_enqueued_work_is_untouched_by_refused_writes(store: Storage) -> None:
    """Refused writes touch no other task."""
    who, task = running_task(store)
    other = enqueue_one(store)
    before = row(store, other)
    finish(store, who, success(task._replace(claim_token=77)), success(task._replace(task_id=other)))
    assert row(store, other) == before
