"""Dedupe keys by scope: what a running task holds of its key, and what happens when it comes back."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.databases import opened
from tests.storage.samples import (
    LEASE,
    batch,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    failure,
    finish,
    join,
    nobody,
    row,
    statuses,
    success,
)

WAITING = NewTask("t", dedupe_key="k", dedupe_scope="waiting")


def test_open_counts_a_running_task(store: Storage) -> None:
    """With the usual scope a key is taken until its task has ended."""
    who = join(store)
    first = enqueue_one(store, dedupe_key="k")
    task = claim_one(store, who)
    again = enqueue(store, NewTask("t", dedupe_key="k"))
    assert (again.ids, again.existing) == ((first,), (first,))
    finish(store, who, success(task))
    assert enqueue(store, NewTask("t", dedupe_key="k")).existing == ()


def test_waiting_lets_one_wait_beside_one_that_runs(store: Storage) -> None:
    """With the scope `waiting` the claim frees the key: one runs, one waits, and a third meets the one that waits."""
    [first] = enqueue(store, WAITING).ids
    assert enqueue(store, WAITING).existing == (first,)
    claim_one(store, join(store))
    [second] = enqueue(store, WAITING).ids
    assert second != first
    assert enqueue(store, WAITING).existing == (second,)


@pytest.mark.parametrize("way", ["retry", "release", "rescue", "leave"])
def test_a_return_that_meets_a_sibling_ends_with_that_reason(store: Storage, way: str) -> None:
    """A running task that would come back while one of its key waits ends as its duplicate."""
    [first] = enqueue(store, WAITING).ids
    who = join(store)
    task = claim_one(store, who)
    [sibling] = enqueue(store, WAITING).ids
    if way == "retry":
        finish(store, who, failure(task))
    elif way == "release":
        store.queue.release(who.incarnation, [task.fence], interrupted=False, reason="x")
    elif way == "leave":
        store.registry.end(who.worker_id, who.incarnation, reason="x")
    else:
        age(store, LEASE + 1)
        store.control.rescue(None, nobody)
    record = row(store, first)
    assert (record.status, record.error_kind) == ("failed", "duplicate")
    assert record.error is not None
    assert str(sibling) in record.error
    assert row(store, sibling).status == "pending"


def test_one_that_cannot_come_back_harms_no_other(store: Storage) -> None:
    """Of a batch given back, the one whose place is taken ends, and the others wait again (RT03)."""
    who = join(store)
    plain = batch(store, who, 3)
    enqueue(store, WAITING)
    keyed = claim_one(store, who)
    enqueue(store, WAITING)
    fences = [plain[0].fence, keyed.fence, plain[1].fence, plain[2].fence]
    assert len(store.queue.release(who.incarnation, fences, interrupted=False, reason="x")) == 4
    assert statuses(store, [task.task_id for task in plain]) == ["pending"] * 3
    assert row(store, keyed.task_id).error_kind == "duplicate"


def test_two_that_come_back_at_once_are_told_apart(store: Storage) -> None:
    """Two running tasks of one key that are given back together leave one waiting (RT03)."""
    who = join(store)
    tasks = []
    for _ in range(2):
        enqueue(store, WAITING)
        tasks.append(claim_one(store, who))
    store.queue.release(who.incarnation, [task.fence for task in tasks], interrupted=False, reason="x")
    assert sorted(statuses(store, [task.task_id for task in tasks])) == ["failed", "pending"]


def test_without_a_sibling_it_comes_back(store: Storage) -> None:
    """A running task of the scope `waiting` is retried like any other, and takes its key again."""
    [first] = enqueue(store, WAITING).ids
    who = join(store)
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, first).status == "scheduled"
    assert enqueue(store, WAITING).existing == (first,)


def test_many_at_once_make_one(tmp_path: Path, postgres_url: str) -> None:
    """Of 20 threads that enqueue one key at once, one makes the task, and all get its id (DX14, DX15)."""
    for url in (str(tmp_path / "fleet.db"), postgres_url):
        opened(url, create=True).close()

        def enqueue_in_its_own(_: int, url: str = url) -> int:
            store = opened(url)
            [task_id] = enqueue(store, NewTask("t", dedupe_key="k")).ids
            store.close()
            return task_id

        with ThreadPoolExecutor(20) as threads:
            ids = set(threads.map(enqueue_in_its_own, range(20)))
        assert len(ids) == 1
        store = opened(url)
        assert store.queue.open_totals()["pending"] == 1
        store.close()


def test_keys_are_of_their_handler(store: Storage) -> None:
    """Two handlers may use the same key."""
    ids = enqueue(store, NewTask("t", dedupe_key="k"), NewTask("u", dedupe_key="k")).ids
    assert len(set(ids)) == 2


def test_an_idempotency_key_outlives_its_task(store: Storage) -> None:
    """A repeated enqueue returns the same id after the task has ended, until it is pruned."""
    who = join(store)
    first = enqueue_one(store, idempotency_key="k")
    finish(store, who, success(claim_one(store, who)))
    assert enqueue(store, NewTask("t", idempotency_key="k")).existing == (first,)
    assert claim(store, who) == ()
    store.queue.prune_after(0, 0.0)
    assert enqueue(store, NewTask("t", idempotency_key="k")).existing == ()
