from datetime import timedelta

import pytest

from fleet.domain.task import TaskStatus
from fleet.domain.worker import Beat, WorkerStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    HEARTBEAT,
    LEASE,
    batch,
    beat,
    claim_one,
    everybody,
    execute,
    finish,
    join,
    row,
    running_task,
    success,
)


def test_a_beat_renews_the_lease(store: Storage) -> None:
    """A beat dates the heartbeat now and the lease one lease later, however late it comes."""
    who = join(store)
    age(store, LEASE - 1)
    reply = beat(store, who)
    record = store.registry.get("w")
    assert record is not None
    assert reply.known
    assert reply.status is WorkerStatus.ACTIVE
    assert record.last_heartbeat - record.started_at >= timedelta(seconds=LEASE - 1)
    assert record.lease_expires_at - record.last_heartbeat == timedelta(seconds=LEASE)


def test_a_beat_stores_what_it_carries(store: Storage) -> None:
    """Counters, current task and metrics are stored; a beat without metrics leaves those that were there."""
    who, task = running_task(store)
    beat(store, who, task, current_task_id=task.task_id, tasks_done=3, tasks_failed=1, metadata={"rss": 5})
    beat(store, who, task, current_task_id=task.task_id, tasks_done=4, tasks_failed=1)
    record = store.registry.get("w")
    assert record is not None
    assert (record.tasks_done, record.tasks_failed, record.current_task_id) == (4, 1, task.task_id)
    assert record.metadata == {"rss": 5}


def test_idle_since_is_the_first_idle_beat(store: Storage) -> None:
    """A worker is idle since its first idle beat, until it is busy again."""
    who, task = running_task(store)
    beat(store, who, task)
    record = store.registry.get("w")
    assert record is not None
    assert record.idle_since is None
    finish(store, who, success(task))
    beat(store, who)
    age(store, 4)
    beat(store, who)
    record = store.registry.get("w")
    assert record is not None
    assert record.idle_since is not None
    assert record.last_heartbeat - record.idle_since >= timedelta(seconds=4)


@pytest.mark.parametrize("end", ["terminated", "lost"])
def test_a_beat_revives_nothing(store: Storage, end: str) -> None:
    """A beat of an incarnation that ended touches no row and is told so (DX08)."""
    who = join(store)
    if end == "terminated":
        store.registry.end("w", who.incarnation, reason="x")
    else:
        store.control.rescue(None, everybody)
    before = store.registry.get("w")
    reply = beat(store, who)
    assert not reply.known
    assert store.registry.get("w") == before
    assert before is not None
    assert before.status == end


def test_a_beat_registers_nobody(store: Storage) -> None:
    """A beat of an unknown worker, or of another life of a known one, is not known and adds no row."""
    join(store)
    before = store.registry.list()
    replies = store.registry.beat([Beat("x", "i"), Beat("w", "another life")])
    assert [reply.known for reply in replies] == [False, False]
    assert store.registry.list() == before


def test_one_call_beats_for_many(store: Storage) -> None:
    """Beats of a whole group are one call, with replies in the order of the beats, strangers among them."""
    members = {name: join(store, name) for name in ("c", "a", "b")}
    store.registry.begin_drain("a", reason="x")
    beats = [Beat(name, members[name].incarnation) for name in ("b", "c", "a")]
    replies = store.registry.beat([beats[0], Beat("x", "i"), *beats[1:]])
    assert [reply.worker_id for reply in replies] == ["b", "x", "c", "a"]
    assert [reply.status for reply in replies] == ["active", None, "active", "terminating"]


def test_no_beats_are_no_replies(store: Storage) -> None:
    """A group without workers beats for nobody."""
    assert store.registry.beat([]) == ()


def test_a_paused_worker_beats_on(store: Storage) -> None:
    """A paused worker keeps its lease and is told that it is paused (ST10)."""
    who = join(store)
    execute(store, "UPDATE worker_registry SET paused = true")
    age(store, LEASE - 1)
    reply = beat(store, who)
    assert reply.paused
    assert reply.status is WorkerStatus.ACTIVE
    assert store.control.rescue(None, lambda _: False) == ()


def test_a_held_task_stays(store: Storage) -> None:
    """A beat that carries the claim leaves the task running, however long it runs (DX17, ST05)."""
    who, task = running_task(store)
    for _ in range(4):
        age(store, LEASE - 1)
        reply = beat(store, who, task)
        assert reply.lost_tasks == ()
        assert reply.released_tasks == ()
    assert row(store, task.task_id).status is TaskStatus.RUNNING


def test_a_claim_that_nobody_holds_is_released(store: Storage) -> None:
    """A claim whose reply was lost is back in the queue, uncharged, once it is older than a heartbeat (DX07)."""
    who, task = running_task(store)
    age(store, HEARTBEAT - 2)
    assert beat(store, who).released_tasks == ()
    assert row(store, task.task_id).status is TaskStatus.RUNNING
    age(store, 2.001)
    assert beat(store, who).released_tasks == (task.task_id,)
    record = row(store, task.task_id)
    assert record.status is TaskStatus.PENDING
    assert record.attempt == 0
    assert record.worker is None
    assert record.started_at is None
    assert beat(store, who).released_tasks == ()


def test_only_what_is_not_held_is_released(store: Storage) -> None:
    """Of a batch, a beat releases exactly the claims that it does not carry, and of this worker alone."""
    who, other = join(store), join(store, "other")
    mine, theirs = batch(store, who, 3), batch(store, other, 2)
    age(store, HEARTBEAT + 1)
    reply = beat(store, who, mine[1])
    assert set(reply.released_tasks) == {mine[0].task_id, mine[2].task_id}
    assert row(store, mine[1].task_id).status is TaskStatus.RUNNING
    assert {row(store, task.task_id).status for task in theirs} == {TaskStatus.RUNNING}


def test_an_old_token_is_not_holding(store: Storage) -> None:
    """A beat that names an older claim of a task does not hold its present claim, and learns that it lost it (DX08)."""
    who, stale = running_task(store)
    store.queue.release(who.incarnation, [stale.fence], interrupted=False, reason="x")
    other = join(store, "other")
    claim_one(store, other)
    reply = beat(store, who, stale)
    assert reply.lost_tasks == (stale.task_id,)
    assert row(store, stale.task_id).worker == "other"


@pytest.mark.parametrize("fate", ["finished", "released", "deleted"])
def test_a_beat_tells_what_was_lost(store: Storage, fate: str) -> None:
    """A held task whose row no longer names the claim is reported, so that its execution stops (DX08, ST07)."""
    who, task = running_task(store)
    if fate == "finished":
        finish(store, who, success(task))
    elif fate == "released":
        store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    else:
        execute(store, "DELETE FROM work_queue")
    reply = beat(store, who, task)
    assert reply.known
    assert reply.lost_tasks == (task.task_id,)


def test_an_ended_worker_loses_all_it_holds(store: Storage) -> None:
    """A worker that was declared lost is told that every task it holds is lost (DX04)."""
    who, task = running_task(store)
    store.control.rescue(None, everybody)
    reply = beat(store, who, task)
    assert not reply.known
    assert set(reply.lost_tasks) <= {task.task_id}
    assert row(store, task.task_id).status in (TaskStatus.PENDING, TaskStatus.SCHEDULED)


def test_a_lease_is_kept_without_a_transaction(store: Storage) -> None:
    """Renewing a lease alone moves it on, revives no ended life, and knows no stranger."""
    who = join(store)
    age(store, LEASE - 1)
    assert store.registry.keep_lease(who.worker_id, who.incarnation)
    record = store.registry.get(who.worker_id)
    assert record is not None
    assert record.lease_expires_at - record.last_heartbeat == timedelta(seconds=LEASE)
    assert record.last_heartbeat - record.started_at >= timedelta(seconds=LEASE - 1)
    assert not store.registry.keep_lease(who.worker_id, "another")
    store.registry.end(who.worker_id, who.incarnation, reason="test")
    assert not store.registry.keep_lease(who.worker_id, who.incarnation)
