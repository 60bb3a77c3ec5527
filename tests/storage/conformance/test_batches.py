"""Batches: counted from their rows, ended by their last task, followed once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from fleet.domain.limits import Limit
from fleet.domain.task import NewTask, TaskStatus
from fleet.errors import ConflictError, NotFound
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import opened
from tests.storage.samples import claim, claim_one, enqueue, enqueue_one, failure, finish, join, row, success


def member(store: Storage, batch_id: str = "b", count: int = 1) -> tuple[int, ...]:
    """Add tasks to a batch."""
    return enqueue(store, *[NewTask("t", batch_id=batch_id)] * count).ids


def test_a_batch_counts_its_tasks(store: Storage) -> None:
    """The counts of a batch are those of its tasks by status."""
    who = join(store)
    store.rules.create_batch("b")
    member(store, count=4)
    enqueue_one(store)
    finish(store, who, success(claim_one(store, who)), failure(claim_one(store, who), final=True))
    found = store.rules.batch("b")
    assert found is not None
    assert found.counts == {TaskStatus.DONE: 1, TaskStatus.FAILED: 1, TaskStatus.PENDING: 2}
    assert (found.size, found.open, found.succeeded) == (4, 2, False)
    assert store.rules.batch("nobody") is None
    assert [batch.batch_id for batch in store.rules.batches()] == ["b"]


@pytest.mark.parametrize("close_first", [True, False])
def test_the_callback_follows_the_end(store: Storage, close_first: bool) -> None:
    """The task that follows is claimable once the batch is closed and its last task has ended, in whichever order."""
    who = join(store)
    callback = store.rules.create_batch("b", NewTask("after")).callback_id
    assert callback is not None
    member(store, count=2)
    if close_first:
        assert store.rules.close_batch("b")
    finish(store, who, success(claim_one(store, who)))
    assert row(store, callback).status == "blocked"
    finish(store, who, failure(claim_one(store, who), final=True))
    if not close_first:
        assert row(store, callback).status == "blocked"
        assert store.rules.close_batch("b")
    assert row(store, callback).status == "pending"
    found = store.rules.batch("b")
    assert found is not None
    assert found.ended_at is not None
    assert not found.succeeded
    assert not store.rules.close_batch("b")


def test_an_empty_batch_ends_when_it_is_closed(store: Storage) -> None:
    """A batch without tasks is followed at once."""
    callback = store.rules.create_batch("b", NewTask("after")).callback_id
    store.rules.close_batch("b")
    assert callback is not None
    assert row(store, callback).status == "pending"


def test_cancelling_ends_a_batch_too(store: Storage) -> None:
    """A batch ends with the cancel of its last open task."""
    store.rules.create_batch("b", NewTask("after"))
    ids = member(store, count=2)
    store.rules.close_batch("b")
    store.queue.cancel(ids)
    assert store.queue.open_totals()["pending"] == 1


def test_a_callback_keeps_its_own_delay_and_key(store: Storage) -> None:
    """The task that follows waits for its own time and for its key's slot as any other."""
    store.rules.set_limit(Limit("k", max_running=0))
    late = store.rules.create_batch("late", NewTask("after", delay=60)).callback_id
    held = store.rules.create_batch("held", NewTask("after", concurrency_key="k")).callback_id
    store.rules.close_batch("late")
    store.rules.close_batch("held")
    assert late is not None
    assert held is not None
    assert row(store, late).status == "scheduled"
    assert (row(store, held).status, row(store, held).blocked_reason) == ("blocked", "limit")


def test_a_retry_after_the_end_follows_nothing_twice(store: Storage) -> None:
    """A task of an ended batch that is retried runs, and the callback is not called again."""
    who = join(store)
    store.rules.create_batch("b", NewTask("after"))
    [task_id] = member(store)
    store.rules.close_batch("b")
    finish(store, who, failure(claim_one(store, who), final=True))
    store.queue.retry([task_id])
    finish(store, who, success(claim_one(store, who)))
    assert store.queue.open_totals() == {"blocked": 0, "scheduled": 0, "pending": 1, "running": 0}


def test_what_cannot_be_added_to(store: Storage) -> None:
    """A closed batch, and one that there is not, take no tasks; an id is given once."""
    store.rules.create_batch("b")
    with pytest.raises(ConflictError, match="there is one"):
        store.rules.create_batch("b")
    store.rules.close_batch("b")
    with pytest.raises(ConflictError, match="closed"):
        member(store)
    with pytest.raises(NotFound):
        member(store, "nobody")
    with pytest.raises(NotFound):
        store.rules.close_batch("nobody")


def test_a_batch_in_the_callers_transaction(store: Storage) -> None:
    """A batch that is made, filled and closed in one transaction exists with it, or not at all."""

    def make_and_fail() -> None:
        with store.transaction() as transaction:
            store.rules.create_batch("b", NewTask("after"), transaction=transaction)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        make_and_fail()
    assert store.rules.batch("b") is None
    with store.transaction() as transaction:
        store.rules.create_batch("b", NewTask("after"), transaction=transaction)
        store.queue.enqueue([NewTask("t", batch_id="b")], transaction=transaction)
        store.rules.close_batch("b", transaction=transaction)
    assert store.queue.open_totals() == {"blocked": 1, "scheduled": 0, "pending": 1, "running": 0}


def test_the_last_two_that_end_at_once(postgres_url: str) -> None:
    """On PostgreSQL two last tasks that end in the same moment are followed exactly once."""
    stores = [opened(postgres_url) for _ in range(2)]
    workers = [join(store, f"w{number}") for number, store in enumerate(stores)]
    try:
        for number in range(20):
            callback = stores[0].rules.create_batch(f"b{number}", NewTask("after")).callback_id
            member(stores[0], f"b{number}", 2)
            stores[0].rules.close_batch(f"b{number}")
            tasks = [claim(store, who)[0] for store, who in zip(stores, workers, strict=True)]
            start = Barrier(2)

            def end(place: int, tasks=tasks, start=start) -> None:  # type: ignore[no-untyped-def]
                start.wait()
                finish(stores[place], workers[place], success(tasks[place]))

            with ThreadPoolExecutor(2) as threads:
                list(threads.map(end, range(2)))
            assert callback is not None
            assert row(stores[0], callback).status == "pending"
            stores[0].queue.cancel([callback])
    finally:
        for store in stores:
            store.close()


def test_a_retried_callback_waits_for_its_batch(store: Storage) -> None:
    """A callback that was cancelled and is retried before the end follows the batch, and not before."""
    who = join(store)
    callback = store.rules.create_batch("b", NewTask("after")).callback_id
    assert callback is not None
    member(store)
    store.rules.close_batch("b")
    store.queue.cancel([callback])
    assert store.queue.retry([callback])[0].after == "blocked"
    assert row(store, callback).blocked_reason == "batch"
    finish(store, who, success(claim_one(store, who)))
    assert row(store, callback).status == "pending"


def test_a_cancelled_callback_stays_cancelled(store: Storage) -> None:
    """The end of a batch revives no callback, and the batch ends all the same."""
    callback = store.rules.create_batch("b", NewTask("after")).callback_id
    assert callback is not None
    store.queue.cancel([callback])
    store.rules.close_batch("b")
    found = store.rules.batch("b")
    assert found is not None
    assert found.ended_at is not None
    assert row(store, callback).status == "cancelled"


def test_a_callback_waits_for_its_own_parents_too(store: Storage) -> None:
    """A callback that depends on other tasks follows when its batch and all of them have ended."""
    who = join(store)
    parent = enqueue_one(store)
    callback = store.rules.create_batch("b", NewTask("after", depends_on=(parent,))).callback_id
    assert callback is not None
    store.rules.close_batch("b")
    assert (row(store, callback).status, row(store, callback).blocked_reason) == ("blocked", "parents")
    finish(store, who, success(claim_one(store, who)))
    assert row(store, callback).status == "pending"


def test_parents_that_end_first_leave_a_callback_to_its_batch(store: Storage) -> None:
    """A callback whose parents have ended still waits for its batch."""
    who = join(store)
    parent = enqueue_one(store)
    callback = store.rules.create_batch("b", NewTask("after", depends_on=(parent,))).callback_id
    assert callback is not None
    finish(store, who, success(claim_one(store, who)))
    assert row(store, callback).blocked_reason == "batch"
    store.rules.close_batch("b")
    assert row(store, callback).status == "pending"


@pytest.mark.parametrize("end", ["deadline", "parent"])
def test_a_batch_ends_however_its_last_task_does(store: Storage, end: str) -> None:
    """A batch is ended by a deadline that passes, and by a failed parent, as by any other end."""
    who = join(store, lease_seconds=100)
    store.rules.create_batch("b")
    parent = enqueue_one(store)
    task = claim_one(store, who)
    depends_on = (parent,) if end == "parent" else ()
    enqueue_one(store, batch_id="b", deadline=store.now() + timedelta(seconds=10), depends_on=depends_on)
    store.rules.close_batch("b")
    if end == "parent":
        finish(store, who, failure(task, final=True))
    else:
        age(store, 11)
        store.queue.advance()
    found = store.rules.batch("b")
    assert found is not None
    assert found.ended_at is not None
