"""Cancel and retry: valid in every state, idempotent, and true in what they answer."""

from collections.abc import Callable

import pytest

from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    LEASE,
    batch,
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    nobody,
    row,
    running_task,
    statuses,
    success,
)


def _pending(store: Storage) -> int:
    return enqueue_one(store)


def _scheduled(store: Storage) -> int:
    return enqueue_one(store, delay=60)


def _child(store: Storage) -> int:
    return enqueue_one(store, depends_on=(enqueue_one(store),))


def _held(store: Storage) -> int:
    store.rules.set_limit(Limit("k", max_running=0))
    return enqueue_one(store, concurrency_key="k")


def _callback(store: Storage) -> int:
    callback = store.rules.create_batch("b", NewTask("t")).callback_id
    assert callback is not None
    return callback


def _retrying(store: Storage) -> int:
    who, task = running_task(store)
    finish(store, who, failure(task))
    return task.task_id


@pytest.mark.parametrize("waiting", [_pending, _scheduled, _child, _held, _callback, _retrying])
def test_what_waits_is_cancelled_at_once(store: Storage, waiting: Callable[[Storage], int]) -> None:
    """A task in any waiting state is cancelled by one command, which may be repeated (CA06)."""
    task_id = waiting(store)
    [answer] = store.queue.cancel([task_id])
    assert (answer.after, answer.obeyed) == ("cancelled", True)
    record = row(store, task_id)
    assert (record.status, record.error_kind, record.blocked_reason) == ("cancelled", "cancelled", None)
    assert record.finished_at is not None
    [again] = store.queue.cancel([task_id])
    assert (again.before, again.after, again.obeyed) == ("cancelled", "cancelled", True)


def test_what_runs_is_asked(store: Storage) -> None:
    """A running task is asked to stop: its holder learns it from a beat, and from a read (CA06)."""
    who, task = running_task(store)
    [answer] = store.queue.cancel([task.task_id])
    assert (answer.before, answer.after, answer.obeyed) == ("running", "running", True)
    assert who.worker_id in answer.text
    assert beat(store, who, task).cancelled_tasks == (task.fence,)
    assert store.queue.cancel_requests([who.worker_id, "other"]) == ((who.worker_id, task.fence),)
    assert store.queue.cancel_requests(["other"]) == ()


def test_claimed_and_not_begun_is_asked_too(store: Storage) -> None:
    """A task that was claimed in a batch and not begun is cancelled when it is given back (CA06)."""
    who = join(store)
    first, second = batch(store, who, 2)
    store.queue.cancel([second.task_id])
    store.queue.release(who.incarnation, [first.fence, second.fence], interrupted=False, reason="x")
    assert statuses(store, [first.task_id, second.task_id]) == ["pending", "cancelled"]


@pytest.mark.parametrize("end", ["retry", "failed", "release", "rescue", "end", "lost reply"])
def test_a_request_sticks(store: Storage, end: str) -> None:
    """Whatever but success happens to a running task whose end was asked for: it ends cancelled, not retried (CA01)."""
    who, task = running_task(store)
    store.queue.cancel([task.task_id])
    if end == "retry":
        finish(store, who, failure(task))
    elif end == "failed":
        finish(store, who, failure(task, final=True))
    elif end == "release":
        store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    elif end == "rescue":
        age(store, LEASE + 1)
        store.control.rescue(None, nobody)
    elif end == "end":
        store.registry.end(who.worker_id, who.incarnation, reason="killed")
    else:
        age(store, LEASE / 2)
        beat(store, who)
    record = row(store, task.task_id)
    assert (record.status, record.error_kind) == ("cancelled", "cancelled")
    assert claim(store, join(store, "w2")) == ()


def test_success_wins(store: Storage) -> None:
    """A handler that returned before it heeded the request is done: its effects have happened (CA01)."""
    who, task = running_task(store)
    store.queue.cancel([task.task_id])
    finish(store, who, success(task))
    assert row(store, task.task_id).status == "done"
    [answer] = store.queue.cancel([task.task_id])
    assert (answer.before, answer.obeyed) == ("done", False)


def test_answers_are_in_order(store: Storage) -> None:
    """Many ids get an answer each, in the order given; unknown ones too."""
    first, second = enqueue(store, NewTask("t"), NewTask("t")).ids
    answers = store.queue.cancel([second, 99_999_999, first, second])
    assert [answer.task_id for answer in answers] == [second, 99_999_999, first, second]
    assert [answer.obeyed for answer in answers] == [True, False, True, True]
    assert answers[1].before is None


def test_cancelling_pauses_nothing(store: Storage) -> None:
    """What is enqueued after everything was cancelled runs (CA05)."""
    store.queue.cancel(enqueue(store, *[NewTask("t")] * 3).ids)
    later = enqueue_one(store)
    assert claim_one(store, join(store)).task_id == later


def test_a_retried_task_has_all_its_attempts(store: Storage) -> None:
    """A failed task that an operator retries begins anew, and keeps its history (RT09)."""
    who, task = running_task(store, max_attempts=2)
    finish(store, who, failure(task, final=True))
    [answer] = store.queue.retry([task.task_id])
    assert (answer.before, answer.after, answer.obeyed) == ("failed", "pending", True)
    record = row(store, task.task_id)
    assert (record.attempt, record.worker, record.finished_at) == (0, None, None)
    again = claim_one(store, who)
    assert (again.attempt, again.claim_token) == (1, task.claim_token + 1)
    assert [attempt.outcome for attempt in store.queue.attempts(task.task_id)] == ["failed"]


def test_only_what_failed_or_was_cancelled_is_retried(store: Storage) -> None:
    """Open and done tasks stay as they are, and the answer says so."""
    who, task = running_task(store)
    waiting = enqueue_one(store, task="u")
    answers = store.queue.retry([task.task_id, waiting, 99_999_999])
    assert [answer.obeyed for answer in answers] == [False, False, False]
    finish(store, who, success(task))
    assert not store.queue.retry([task.task_id])[0].obeyed
    store.queue.cancel([waiting])
    assert store.queue.retry([waiting])[0].after == "pending"
    assert not row(store, waiting).cancel_requested


def test_a_retried_task_of_a_full_key_says_what_it_is(store: Storage) -> None:
    """The answer tells the status in which the row is at the end."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    first, second = enqueue(store, *[NewTask("t", concurrency_key="k")] * 2).ids
    finish(store, who, failure(claim_one(store, who), final=True))
    [answer] = store.queue.retry([first])
    assert answer.after == row(store, first).status == "blocked"
    finish(store, who, success(claim_one(store, who)))
    finish(store, who, failure(claim_one(store, who), final=True))
    [answer] = store.queue.retry([first])
    assert answer.after == row(store, first).status == "pending"
    assert row(store, second).status == "done"


def test_the_failed_are_retried_in_steps(store: Storage) -> None:
    """All failed tasks of a kind come back step by step, and the others stay."""
    who = join(store)
    ids = enqueue(store, *[NewTask("t")] * 5, NewTask("t", queue="other")).ids
    for _ in ids:
        finish(store, who, failure(claim_one(store, who), final=True))
    execute(store, "UPDATE work_queue SET error_kind = 'OSError' WHERE id = :id", id=ids[1])
    retried, after = [], 0
    while answers := store.queue.retry_failed(error_kind="ValueError", queue="default", after=after, limit=2):
        after = answers[-1].task_id
        retried += [answer.task_id for answer in answers if answer.obeyed]
    assert retried == [ids[0], *ids[2:5]]
    assert statuses(store, [ids[1], ids[5]]) == ["failed", "failed"]


def test_nothing_revives_a_failed_task(store: Storage) -> None:
    """Time, maintenance and restarts leave a failed task as it is (RT09)."""
    who, task = running_task(store)
    finish(store, who, failure(task, final=True))
    age(store, 86_400)
    store.queue.advance()
    store.queue.sweep()
    store.control.rescue(None, nobody)
    assert row(store, task.task_id).status == "failed"


def test_a_retry_beside_a_sibling_is_refused(store: Storage) -> None:
    """A failed task does not come back while another with its dedupe key is open."""
    who, task = running_task(store, dedupe_key="k")
    finish(store, who, failure(task, final=True))
    sibling = enqueue_one(store, dedupe_key="k")
    [answer] = store.queue.retry([task.task_id])
    assert not answer.obeyed
    assert str(sibling) in answer.text
    assert row(store, task.task_id).status == "failed"


def test_what_runs_at_a_draining_worker_is_cancelled_too(store: Storage) -> None:
    """A task of a worker that drains is asked to stop, and ends cancelled when the worker is killed (CA06)."""
    who, task = running_task(store)
    store.registry.begin_drain(who.worker_id, reason="x")
    [answer] = store.queue.cancel([task.task_id])
    assert (answer.after, answer.obeyed) == ("running", True)
    [repeated] = store.queue.cancel([task.task_id])
    assert (repeated.after, repeated.obeyed) == ("running", True)
    store.registry.end(who.worker_id, who.incarnation, reason="killed")
    assert row(store, task.task_id).status == "cancelled"


def test_a_request_ends_with_the_task(store: Storage) -> None:
    """A task that was cancelled while it ran, and is retried, runs without the old request."""
    who, task = running_task(store)
    store.queue.cancel([task.task_id])
    finish(store, who, failure(task))
    store.queue.retry([task.task_id])
    again = claim_one(store, who)
    assert store.queue.cancel_requests([who.worker_id]) == ()
    assert beat(store, who, again).cancelled_tasks == ()
    finish(store, who, success(again))
    assert row(store, task.task_id).status == "done"
