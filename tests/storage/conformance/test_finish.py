from datetime import timedelta

import pytest

from fleet.domain.execution import ClaimedTask, Finish
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    LEASE,
    all_lanes,
    batch,
    beat,
    claim,
    claim_one,
    claimant_of,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    row,
    running_task,
    statuses,
    success,
)


def test_a_success_is_stored_with_its_result(store: Storage) -> None:
    """A done task holds its result and its end, and nothing of an error."""
    who, task = running_task(store)
    assert finish(store, who, success(task, '{"n":"\\u00e9"}')) == 1
    record = row(store, task.task_id)
    assert record.status is TaskStatus.DONE
    assert record.result_json == '{"n":"\\u00e9"}'
    assert record.finished_at is not None
    assert (record.error, record.error_kind, record.traceback) == (None, None, None)


def test_a_final_failure_is_stored_with_its_reason(store: Storage) -> None:
    """A failed task holds error, kind and traceback, whatever letters are in them."""
    who, task = running_task(store)
    finish(
        store,
        who,
        Finish(task.fence, TaskStatus.FAILED, error="it broke: '\u2400;--%s", error_kind="X", traceback="a\n😀"),
    )
    record = row(store, task.task_id)
    assert record.status is TaskStatus.FAILED
    assert (record.error, record.error_kind, record.traceback) == ("it broke: '\u2400;--%s", "X", "a\n😀")
    assert record.finished_at is not None


def test_an_attempt_that_failed_is_tried_again_later(store: Storage) -> None:
    """A failed attempt waits in `scheduled` for its delay and keeps the count of attempts."""
    who, task = running_task(store, retry=RetryPolicy("fixed", 7, 7))
    finish(store, who, failure(task))
    record = row(store, task.task_id)
    assert record.status is TaskStatus.SCHEDULED
    assert record.attempt == 1
    assert record.finished_at is None
    assert record.error == "it broke"
    assert record.worker is None
    wait = store.queue.next_due_in()
    assert wait is not None
    assert 5 < wait <= 7


def test_attempts_end(store: Storage) -> None:
    """A task is tried as often as it may be and then stays failed, whatever time passes (RT04)."""
    who = join(store)
    task_id = enqueue_one(store, max_attempts=3)
    for attempt in (1, 2, 3):
        task = claim_one(store, who)
        assert task.attempt == attempt
        assert task.has_attempts_left is (attempt < 3)
        finish(store, who, failure(task))
        age(store, 700)
        who = join(store)
        store.queue.advance()
    assert row(store, task_id).status is TaskStatus.FAILED
    assert row(store, task_id).attempt == 3
    assert claim(store, who) == ()


def test_attempt_2000_waits_for_the_cap(store: Storage) -> None:
    """A task at attempt 2000 of 3000 that fails is due at the cap, at a valid time (RT01)."""
    who = join(store)
    task_id = enqueue_one(store, max_attempts=3_000, retry=RetryPolicy("exponential"))
    execute(store, "UPDATE work_queue SET attempt = 1999")
    finish(store, who, failure(claim_one(store, who)))
    record = row(store, task_id)
    assert record.status is TaskStatus.SCHEDULED
    assert record.available_at is not None
    assert timedelta(seconds=598) < record.available_at - store.now() <= timedelta(seconds=600)


def test_a_task_is_promoted_at_its_time(store: Storage) -> None:
    """A scheduled task is not claimable before its time, and pending after one promotion then (DX10, DX19)."""
    who = join(store)
    task_id = enqueue_one(store, delay=10)
    age(store, 8)
    assert store.queue.advance() == 0
    assert claim(store, who) == ()
    due_in = store.queue.next_due_in()
    assert due_in is not None
    assert 0 < due_in <= 2
    age(store, 2)
    assert store.queue.next_due_in() == 0
    assert store.queue.advance() == 1
    assert store.queue.advance() == 0
    assert store.queue.next_due_in() is None
    assert claim_one(store, who).task_id == task_id


def test_promotion_is_exact(memory: Storage) -> None:
    """One millisecond before its time a task stays scheduled; at its time it is due."""
    enqueue_one(memory, delay=10)
    age(memory, 9.999)
    assert memory.queue.advance() == 0
    assert memory.queue.next_due_in() == pytest.approx(0.001)
    age(memory, 0.001)
    assert memory.queue.advance() == 1


def test_promotion_is_bounded(store: Storage) -> None:
    """One promotion moves no more than it was asked to, the earliest first, and the next goes on (LK09)."""
    store.queue.enqueue([NewTask("t", delay=float(number)) for number in range(1, 8)])
    age(store, 60)
    assert [store.queue.advance(3) for _ in range(4)] == [3, 3, 1, 0]


def test_a_batch_ends_in_one_call(store: Storage) -> None:
    """Many ends of different kinds are written in one call, each with its own outcome."""
    who = join(store)
    first, second, third = batch(store, who, 3)
    finishes = [success(first, "[1]"), failure(second), failure(third, final=True)]
    assert finish(store, who, *finishes) == 3
    assert statuses(store, [first.task_id, second.task_id, third.task_id]) == ["done", "scheduled", "failed"]
    assert row(store, first.task_id).result_json == "[1]"


def test_the_start_of_a_batched_task_comes_with_its_end(store: Storage) -> None:
    """A batched task that ends has a start, as long ago as its execution began, and not before its claim."""
    who = join(store)
    [task, _] = batch(store, who, 2)
    age(store, 4)
    finish(store, who, Finish(task.fence, TaskStatus.DONE, started_seconds_ago=2.0, seconds=2.0))
    record = row(store, task.task_id)
    assert record.started_at is not None
    assert record.finished_at is not None
    assert record.claimed_at is not None
    assert record.claimed_at <= record.started_at <= record.finished_at
    assert timedelta(seconds=1.9) < record.finished_at - record.started_at < timedelta(seconds=3)


def test_a_long_batched_task_is_stamped_as_started(store: Storage) -> None:
    """Starting a batched task stamps its row once; its claim stays."""
    who = join(store)
    [task, other] = batch(store, who, 2)
    assert store.queue.start(who, task.fence)
    assert row(store, task.task_id).started_at is not None
    assert row(store, task.task_id).claim_token == task.claim_token
    assert row(store, other.task_id).started_at is None


def test_finishing_nothing_is_allowed(store: Storage) -> None:
    """A worker may finish nothing and claim nothing."""
    who = join(store)
    reply = store.queue.finish_and_claim(who, [], all_lanes(store), 0)
    assert (reply.tasks, reply.accepted) == ((), frozenset())


def test_progress_is_stored(store: Storage) -> None:
    """Progress and its line are stored while the task runs."""
    who, task = running_task(store)
    assert store.queue.progress(who.incarnation, task.fence, 0.5, "half way: 50 %")
    record = row(store, task.task_id)
    assert (record.progress, record.progress_text) == (0.5, "half way: 50 %")


def test_a_release_gives_the_attempt_back(store: Storage) -> None:
    """A released task is pending as if it had not been claimed, only its token has risen."""
    who, task = running_task(store)
    assert store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x") == (task.task_id,)
    record = row(store, task.task_id)
    assert record.status is TaskStatus.PENDING
    assert (record.attempt, record.interruptions) == (0, 0)
    assert (record.worker, record.incarnation, record.claimed_at, record.started_at) == (None, None, None, None)
    assert claim_one(store, who).attempt == 1


def test_many_are_released_at_once(store: Storage) -> None:
    """A batch is released in one call; releasing nothing releases nothing."""
    who = join(store)
    tasks = batch(store, who, 4)
    assert store.queue.release(who.incarnation, [], interrupted=False, reason="x") == ()
    released = store.queue.release(who.incarnation, [task.fence for task in tasks], interrupted=False, reason="x")
    assert sorted(released) == [task.task_id for task in tasks]
    assert len(claim(store, who, 10)) == 4


def test_ten_interruptions_are_borne_and_the_eleventh_condemns(store: Storage) -> None:
    """A task that is interrupted for the eleventh time ends as failed, without an attempt spent (RT05)."""
    who = join(store)
    task_id = enqueue_one(store)
    for count in range(1, 11):
        task = claim_one(store, who)
        assert store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x") == (task_id,)
        assert row(store, task_id).status is TaskStatus.PENDING
        assert row(store, task_id).interruptions == count
    task = claim_one(store, who)
    store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    record = row(store, task_id)
    assert record.status is TaskStatus.FAILED
    assert record.error_kind == "interrupted_too_often"
    assert record.finished_at is not None
    assert claim(store, who) == ()


def fail_at(store: Storage, worker_id: str, others: tuple[str, ...]) -> ClaimedTask:
    """Let `worker_id`, with other workers about, fail a task that is then due again; return the claim."""
    who = join(store, worker_id)
    for other in others:
        join(store, other)
    enqueue_one(store, retry=RetryPolicy("fixed", 1, 1))
    task = claim_one(store, who)
    finish(store, who, failure(task))
    age(store, 1)
    store.queue.advance()
    return task


def test_a_failed_task_is_left_to_others(store: Storage) -> None:
    """A worker passes over the task that it just failed while another can take it."""
    fail_at(store, "a", ("b",))
    a, b = store.registry.list()
    assert claim(store, claimant_of(a)) == claim(store, claimant_of(a), 10) == ()
    assert len(claim(store, claimant_of(b))) == 1


def test_a_failed_task_is_left_for_one_lease_only(store: Storage) -> None:
    """One lease after the task is due again, the worker that failed it may take it."""
    fail_at(store, "a", ("b",))
    a = claimant_of(store.registry.list()[0])
    age(store, LEASE - 2)
    beat(store, a)
    assert claim(store, a) == ()
    age(store, 2.001)
    beat(store, a)
    assert len(claim(store, a)) == 1


def test_a_lone_worker_retries_at_once(store: Storage) -> None:
    """Where no other live worker serves the lane, the one that failed the task takes it again."""
    fail_at(store, "a", ())
    assert len(claim(store, claimant_of(store.registry.list()[0]))) == 1


def test_a_worker_of_other_handlers_is_no_other(store: Storage) -> None:
    """A worker that does not serve the lane is nobody to leave a failed task to."""
    who = join(store, "a")
    join(store, "b", handlers=("u",))
    join(store, "c", queues=("elsewhere",))
    task_id = enqueue_one(store, retry=RetryPolicy("fixed", 1, 1))
    finish(store, who, failure(claim_one(store, who)))
    age(store, 1)
    store.queue.advance()
    assert claim_one(store, who).task_id == task_id


def test_passing_one_task_over_does_not_hide_the_next(store: Storage) -> None:
    """A worker that passes over its failed task still gets the tasks behind it."""
    fail_at(store, "a", ("b",))
    behind = enqueue_one(store)
    a = claimant_of(store.registry.list()[0])
    assert claim_one(store, a).task_id == behind
