"""Tasks that wait for others: let go exactly when the last of them has ended, whatever happens at that moment."""

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import text

from fleet.clock import SystemClock
from fleet.domain.limits import Limit
from fleet.domain.task import FINAL_STATUSES, NewTask, ParentPolicy, TaskStatus
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from tests.databases import opened
from tests.storage.samples import (
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    execute,
    failure,
    finish,
    join,
    row,
    statuses,
    success,
)


def child_of(store: Storage, *parents: int | str, **given: Any) -> int:
    """Enqueue a task that depends on others."""
    return enqueue_one(store, depends_on=parents, **given)


def test_a_child_waits_for_its_parent(store: Storage) -> None:
    """A task that depends on another is blocked until that is done, and sees its result."""
    who = join(store)
    parent = enqueue_one(store)
    child = child_of(store, parent)
    record = row(store, child)
    assert (record.status, record.blocked_reason) == ("blocked", "parents")
    task = claim_one(store, who)
    assert claim(store, who) == ()
    finish(store, who, success(task, '{"a":1}'))
    assert claim_one(store, who).task_id == child
    [seen] = store.queue.parents(child)
    assert (seen.task_id, seen.status, seen.result_json) == (parent, "done", '{"a":1}')


def test_fan_in_waits_for_the_last(store: Storage) -> None:
    """A task with several parents is let go by the last of them, in whatever batches they end."""
    who = join(store)
    parents = enqueue(store, *[NewTask("t")] * 7).ids
    child = child_of(store, *parents)
    tasks = claim(store, who, 7)
    finish(store, who, *(success(task) for task in tasks[:3]))
    finish(store, who, *(success(task) for task in tasks[3:6]))
    assert row(store, child).status == "blocked"
    finish(store, who, success(tasks[6]))
    assert row(store, child).status == "pending"


def test_fan_out_lets_all_go(store: Storage) -> None:
    """Every child of one parent becomes claimable with its end."""
    who = join(store)
    parent = enqueue_one(store)
    children = enqueue(store, *[NewTask("t", depends_on=(parent,))] * 20).ids
    finish(store, who, success(claim_one(store, who)))
    assert set(statuses(store, children)) == {"pending"}


def test_very_wide_fan_outs_go_on_in_steps(store: Storage) -> None:
    """More children than one transaction lets go follow step by step, by whoever looks, and none is left."""
    who = join(store)
    parent = enqueue_one(store)
    enqueue(store, *[NewTask("t", depends_on=(parent,))] * 2_500)
    finish(store, who, success(claim_one(store, who)))
    assert 0 < store.queue.open_totals()["blocked"] < 2_500
    assert store.queue.next_due_in() == 0
    steps = 0
    while store.queue.advance(200):
        steps += 1
    assert steps >= 2
    assert store.queue.open_totals() == {"blocked": 0, "scheduled": 0, "pending": 2_500, "running": 0}


def test_a_claimer_goes_on_with_a_wide_fan_out(store: Storage) -> None:
    """A worker that finds nothing else lets go the next children, and gets one."""
    who = join(store)
    parent = enqueue_one(store)
    enqueue(store, *[NewTask("t", depends_on=(parent,))] * 2_100)
    finish(store, who, success(claim_one(store, who)))
    execute(store, "UPDATE work_queue SET status = 'done' WHERE status = 'pending'")
    assert len(claim(store, who)) == 1


@pytest.mark.parametrize(
    ("policy", "after"),
    [(ParentPolicy.CANCEL, "cancelled"), (ParentPolicy.FAIL, "failed"), (ParentPolicy.RUN, "pending")],
)
@pytest.mark.parametrize("late", [False, True])
def test_the_policy_for_a_failed_parent(store: Storage, policy: ParentPolicy, after: str, late: bool) -> None:
    """A child is cancelled, fails, or runs all the same when its parent fails, and also when it had failed before."""
    who = join(store)
    parent = enqueue_one(store)
    early = None if late else child_of(store, parent, on_parent_failure=policy)
    finish(store, who, failure(claim_one(store, who), final=True))
    child = early if early is not None else child_of(store, parent, on_parent_failure=policy)
    record = row(store, child)
    assert record.status == after
    if policy is not ParentPolicy.RUN:
        assert record.error_kind == "parent_failed"
        assert record.error is not None
        assert str(parent) in record.error
        assert record.finished_at is not None


def test_a_failed_attempt_is_no_failed_parent(store: Storage) -> None:
    """A parent that is to be tried again keeps its children waiting."""
    who = join(store)
    child = child_of(store, enqueue_one(store, max_attempts=2))
    finish(store, who, failure(claim_one(store, who)))
    assert row(store, child).status == "blocked"


def test_failure_goes_down_a_chain(store: Storage) -> None:
    """What depends on a task that ended because of its own parent ends too, and one that runs all the same goes on."""
    who = join(store)
    first = enqueue_one(store)
    second = child_of(store, first)
    third = child_of(store, second, on_parent_failure=ParentPolicy.FAIL)
    fourth = child_of(store, third, on_parent_failure=ParentPolicy.RUN)
    fifth = child_of(store, fourth)
    finish(store, who, failure(claim_one(store, who), final=True))
    assert statuses(store, [second, third, fourth, fifth]) == ["cancelled", "failed", "pending", "blocked"]


def test_cancelling_a_parent_reaches_its_children(store: Storage) -> None:
    """A parent that is cancelled while it waits ends its children by their policies."""
    parent = enqueue_one(store)
    cancelled, kept = child_of(store, parent), child_of(store, parent, on_parent_failure=ParentPolicy.RUN)
    store.queue.cancel([parent])
    assert statuses(store, [cancelled, kept]) == ["cancelled", "pending"]
    assert row(store, cancelled).error_kind == "parent_cancelled"


def test_a_diamond(store: Storage) -> None:
    """Two ways from one task to another let it go once, at the end of both."""
    who = join(store)
    top = enqueue_one(store)
    left, right = child_of(store, top), child_of(store, top)
    bottom = child_of(store, left, right)
    for _ in range(3):
        assert row(store, bottom).status == "blocked"
        finish(store, who, success(claim_one(store, who)))
    assert claim_one(store, who).task_id == bottom


def test_a_parent_that_is_done_already_holds_nobody(store: Storage) -> None:
    """A task that depends on one that is done is claimable at once, and still sees its result."""
    who = join(store)
    parent = enqueue_one(store)
    finish(store, who, success(claim_one(store, who)))
    child = child_of(store, parent)
    assert row(store, child).status == "pending"
    assert [seen.task_id for seen in store.queue.parents(child)] == [parent]


def test_a_delayed_child_waits_for_both(store: Storage) -> None:
    """A child with a delay is scheduled when its parents have ended before that is over."""
    who = join(store)
    child = child_of(store, enqueue_one(store), delay=60)
    finish(store, who, success(claim_one(store, who)))
    assert row(store, child).status == "scheduled"
    assert row(store, child).available_at is not None


def test_refs_name_earlier_tasks_of_the_call(store: Storage) -> None:
    """Tasks of one call depend on each other by the names that they give themselves."""
    first, second, third = enqueue(
        store, NewTask("t", ref="a"), NewTask("t", ref="b", depends_on=("a",)), NewTask("t", depends_on=("a", "b"))
    ).ids
    assert statuses(store, [first, second, third]) == ["pending", "blocked", "blocked"]
    assert [seen.task_id for seen in store.queue.parents(third)] == [first, second]


@pytest.mark.parametrize(
    "tasks",
    [
        [NewTask("t", ref="a", depends_on=("a",))],
        [NewTask("t", ref="a", depends_on=("b",)), NewTask("t", ref="b", depends_on=("a",))],
        [NewTask("t", depends_on=("nobody",))],
        [NewTask("t", ref="a"), NewTask("t", ref="a")],
        [NewTask("t", depends_on=(99_999_999,))],
    ],
    ids=["itself", "a circle", "no such ref", "a ref twice", "no such task"],
)
def test_what_cannot_be_depended_on(store: Storage, tasks: list[NewTask]) -> None:
    """Circles, and what is not there, are refused, and nothing of the call is enqueued."""
    with pytest.raises(UsageError):
        store.queue.enqueue(tasks)
    assert sum(store.queue.open_totals().values()) == 0


@pytest.mark.parametrize("deed", ["UPDATE work_queue SET status = 'done'", "DELETE FROM work_queue"])
def test_what_a_stranger_did_to_a_parent_is_mended(store: Storage, deed: str) -> None:
    """A parent that somebody's own SQL ends, or deletes, holds its child only until the next sweep."""
    parent = enqueue_one(store)
    child = child_of(store, parent, on_parent_failure=ParentPolicy.RUN)
    execute(store, f"{deed} WHERE id = :id", id=parent)
    assert store.queue.sweep() > 0
    assert row(store, child).status == "pending"
    assert store.queue.sweep() == 0


def test_a_sweep_goes_round_in_steps(store: Storage) -> None:
    """However many blocked tasks there are, each is looked at in some sweep."""
    parents = enqueue(store, *[NewTask("t")] * 12).ids
    children = [child_of(store, parent) for parent in parents]
    execute(store, "UPDATE work_queue SET status = 'done' WHERE status = 'pending'")
    for _ in range(6):
        store.queue.sweep(3)
    assert set(statuses(store, children)) == {"pending"}


def test_parents_that_end_at_once_never_leave_a_child(postgres_url: str) -> None:
    """On PostgreSQL two parents that end in the same moment let their child go, whoever commits first."""
    stores = [opened(postgres_url) for _ in range(2)]
    workers = [join(store, f"w{number}") for number, store in enumerate(stores)]
    try:
        for _ in range(50):
            parents = enqueue(stores[0], *[NewTask("t")] * 2).ids
            child = child_of(stores[0], *parents)
            tasks = [claim_one(store, who) for store, who in zip(stores, workers, strict=True)]
            start = Barrier(2)

            def end(place: int, tasks=tasks, start=start) -> None:  # type: ignore[no-untyped-def]
                start.wait()
                finish(stores[place], workers[place], success(tasks[place]))

            with ThreadPoolExecutor(2) as threads:
                list(threads.map(end, range(2)))
            assert row(stores[0], child).status == TaskStatus.PENDING
            finish(stores[0], workers[0], success(claim_one(stores[0], workers[0])))
    finally:
        for store in stores:
            store.close()


def wait_for_a_lock(store: Storage, waiters: int = 1, unless: "Future[Any] | None" = None) -> None:
    """Wait until connections to this PostgreSQL database wait for another one's lock, or something is done."""
    deadline = SystemClock().boottime() + 30.0
    while SystemClock().boottime() < deadline:
        [found] = execute(
            store,
            """SELECT count(*) AS n FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'""",
        )
        if found["n"] >= waiters or (unless is not None and unless.done()):
            return
    raise AssertionError("nobody waits for a lock")


@pytest.mark.parametrize("how", ["done", "failed", "cancel", "deadline"])
def test_an_edge_to_a_parent_that_ends_meanwhile(postgres_url: str, how: str) -> None:
    """On PostgreSQL a parent that ends while a child of it is enqueued lets the child go, or ends it."""
    adding, ending, looking = (opened(postgres_url) for _ in range(3))
    who = join(ending)
    parent = enqueue_one(ending, deadline=ending.now() + timedelta(hours=1))
    task = None if how in ("cancel", "deadline") else claim_one(ending, who)

    def end() -> object:
        if how == "cancel":
            return ending.queue.cancel([parent])
        if task is None:
            return ending.queue.advance()
        return finish(ending, who, success(task) if how == "done" else failure(task, final=True))

    if how == "deadline":
        execute(ending, "UPDATE work_queue SET deadline_at = created_at")
    try:
        with ThreadPoolExecutor(1) as threads:
            with adding.transaction() as transaction:
                [child] = adding.queue.enqueue([NewTask("t", depends_on=(parent,))], transaction=transaction).ids
                ended = threads.submit(end)
                if how == "deadline":
                    # It is passed over while somebody adds to it: maintenance comes again.
                    ended.result(60)
                else:
                    wait_for_a_lock(looking)
            ended.result(60)
        ending.queue.advance()
        assert row(looking, parent).status in FINAL_STATUSES
        assert row(looking, child).status == ("pending" if how == "done" else "cancelled")
    finally:
        for store in (adding, ending, looking):
            store.close()


def test_a_retried_child_waits_for_its_parents_again(store: Storage) -> None:
    """A child that was cancelled and is retried does not overtake the parents that are still open."""
    who = join(store)
    parents = enqueue(store, *[NewTask("t")] * 2).ids
    child = child_of(store, *parents)
    store.queue.cancel([child])
    [answer] = store.queue.retry([child])
    assert (answer.before, answer.after) == ("cancelled", "blocked")
    for _ in parents:
        assert row(store, child).blocked_reason == "parents"
        finish(store, who, success(claim_one(store, who)))
    assert row(store, child).status == "pending"


@pytest.mark.parametrize("way", ["together", "one after the other"])
def test_a_failed_chain_is_retried_as_a_chain(store: Storage, way: str) -> None:
    """When a parent and the child that failed with it are retried, the child waits for the parent again."""
    who = join(store)
    parent = enqueue_one(store)
    child = child_of(store, parent, on_parent_failure=ParentPolicy.FAIL)
    finish(store, who, failure(claim_one(store, who), final=True))
    if way == "together":
        store.queue.retry_failed()
    else:
        store.queue.retry([parent])
        store.queue.retry([child])
    assert statuses(store, [parent, child]) == ["pending", "blocked"]
    finish(store, who, success(claim_one(store, who), "2"))
    assert claim_one(store, who).task_id == child
    assert [seen.result_json for seen in store.queue.parents(child)] == ["2"]


def test_a_child_retried_alone_runs(store: Storage) -> None:
    """A child whose parents have all ended runs when an operator retries it, whatever became of them."""
    who = join(store)
    child = child_of(store, enqueue_one(store))
    finish(store, who, failure(claim_one(store, who), final=True))
    assert store.queue.retry([child])[0].after == "pending"


def test_very_many_children_of_a_parent_that_has_ended(store: Storage) -> None:
    """More children of a parent that is done than one transaction lets go follow step by step too."""
    who = join(store)
    parent = enqueue_one(store)
    finish(store, who, success(claim_one(store, who)))
    enqueue(store, *[NewTask("t", depends_on=(parent,))] * 2_500)
    while store.queue.advance():
        continue
    assert store.queue.open_totals()["pending"] == 2_500


def test_a_failed_parent_ends_very_many_children(store: Storage) -> None:
    """All children of a failed parent are cancelled, and theirs, however many there are."""
    who = join(store)
    parent = enqueue_one(store)
    children = enqueue(store, *[NewTask("t", depends_on=(parent,))] * 2_300).ids
    last = child_of(store, children[-1])
    finish(store, who, failure(claim_one(store, who), final=True))
    while store.queue.advance():
        continue
    assert row(store, last).status == "cancelled"
    assert sum(store.queue.open_totals().values()) == 0


def test_a_child_of_a_full_key_waits_for_both(store: Storage) -> None:
    """A child with a limited key goes from waiting for its parents to waiting for a slot."""
    store.rules.set_limit(Limit("k", max_running=1))
    who = join(store)
    parent = enqueue_one(store, concurrency_key="k")
    child, other = child_of(store, parent, concurrency_key="k"), enqueue_one(store, concurrency_key="k", priority=1)
    finish(store, who, success(claim_one(store, who)))
    assert [row(store, task_id).blocked_reason for task_id in (child, other)] == ["limit", None]
    finish(store, who, success(claim_one(store, who)))
    assert row(store, child).status == "pending"


def test_a_retry_that_meets_the_end_of_the_parent(postgres_url: str) -> None:
    """On PostgreSQL a parent that ends while its child is being retried lets the child go once that is committed."""
    retrying, ending, locking, looking = stores = [opened(postgres_url) for _ in range(4)]
    who = join(ending)
    parent = enqueue_one(ending)
    child, other = child_of(ending, parent), enqueue_one(ending, delay=60)
    finish(ending, who, failure(claim_one(ending, who), final=True))
    ending.queue.cancel([other])
    ending.queue.retry([parent])
    task = claim_one(ending, who)
    try:
        with ThreadPoolExecutor(2) as threads:
            with locking.transaction() as transaction:
                transaction.connection.execute(text(f"SELECT 1 FROM work_queue WHERE id = {other} FOR UPDATE"))
                # The child is looked at and waits again; the other one holds the retry up before it is committed.
                retried = threads.submit(retrying.queue.retry, [child, other])
                wait_for_a_lock(looking)
                ended = threads.submit(finish, ending, who, success(task))
                wait_for_a_lock(looking, 2, ended)
            assert [answer.after for answer in retried.result(60)] == ["blocked", "pending"]
            assert ended.result(60) == 1
        assert statuses(looking, [parent, child]) == ["done", "pending"]
    finally:
        for store in stores:
            store.close()
