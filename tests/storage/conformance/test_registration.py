from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.task import TaskStatus
from fleet.domain.worker import WorkerFilter, WorkerStatus
from fleet.errors import WorkerIdTaken
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    HEARTBEAT,
    LEASE,
    beat,
    claim,
    claimant_of,
    dead,
    enqueue_one,
    everybody,
    execute,
    join,
    nobody,
    process,
    registration,
    row,
    running_task,
)


def test_a_record_says_what_was_registered(store: Storage) -> None:
    """Everything that an incarnation says of itself is stored, with a lease from now on (ST08)."""
    given = registration(
        slots=2,
        group_id="g",
        adapter_id="native:x",
        capabilities={"gpu": 1, "mem": 0.5},
        queues=("images", "mail"),
        handlers=("t", "u"),
        version="1.2",
        log_path="/var/log/w.log",
        metadata={"name": "Zoë"},
    )
    before = store.now()
    record = store.registry.register(given, nobody)
    assert record == store.registry.get("w")
    for name in ("worker_id", "incarnation", "pool", "process", "slots", "group_id", "adapter_id", "capabilities"):
        assert getattr(record, name) == getattr(given, name), name
    for name in ("queues", "handlers", "version", "log_path", "metadata", "heartbeat_seconds", "lease_seconds"):
        assert getattr(record, name) == getattr(given, name), name
    assert record.status is WorkerStatus.ACTIVE
    assert before <= record.started_at == record.last_heartbeat <= store.now()
    assert record.lease_expires_at - record.last_heartbeat == timedelta(seconds=LEASE)
    assert not record.paused
    assert (record.tasks_done, record.tasks_failed, record.current_task_id) == (0, 0, None)


def test_registering_twice_is_once(store: Storage) -> None:
    """A repeated registration of one incarnation changes nothing and returns the record."""
    given = registration()
    first = store.registry.register(given, nobody)
    age(store, 3)
    again = store.registry.register(given, nobody)
    assert again.incarnation == first.incarnation
    assert again.started_at == first.started_at - timedelta(seconds=3)
    assert len(store.registry.list()) == 1


def test_registering_again_revives_nothing(store: Storage) -> None:
    """An incarnation that was flagged stays flagged when its registration is repeated after a lost reply."""
    given = registration()
    store.registry.register(given, nobody)
    store.registry.begin_drain("w", reason="scaled in")
    assert store.registry.register(given, nobody).status is WorkerStatus.TERMINATING


def test_a_live_worker_keeps_its_id(store: Storage) -> None:
    """Another incarnation under a live worker's id is refused, with the id in the message, and changes nothing."""
    before = store.registry.register(registration(), nobody)
    with pytest.raises(WorkerIdTaken, match=r"\bw\b"):
        store.registry.register(registration(), nobody)
    assert store.registry.get("w") == before


def test_a_terminating_worker_keeps_its_id(store: Storage) -> None:
    """A worker that is draining still holds its id: it has work in hand."""
    join(store)
    store.registry.begin_drain("w", reason="scaled in")
    with pytest.raises(WorkerIdTaken):
        store.registry.register(registration(), nobody)


def test_the_dead_are_taken_over_at_once(store: Storage) -> None:
    """A restart under the same id takes over at once from a process proven dead, and gets none of its claims (ST04)."""
    old = store.registry.register(registration(process=process(7)), nobody)
    task_id = enqueue_one(store)
    claim(store, claimant_of(old))
    new = store.registry.register(registration(process=process(8)), dead(7))
    assert new.status is WorkerStatus.ACTIVE
    assert new.process == process(8)
    assert row(store, task_id).status in (TaskStatus.PENDING, TaskStatus.SCHEDULED)
    assert not beat(store, claimant_of(old)).known


def test_take_over_is_at_the_leases_end(store: Storage) -> None:
    """A silent incarnation holds its id until its lease is over, not longer (ST04, ST13)."""
    join(store)
    age(store, LEASE - 2)
    with pytest.raises(WorkerIdTaken):
        store.registry.register(registration(), nobody)
    age(store, 2.001)
    new = registration()
    assert store.registry.register(new, nobody).incarnation == new.incarnation


def test_an_id_is_free_after_its_worker_ended(store: Storage) -> None:
    """After an orderly end the id can be registered again at once, with counters at zero."""
    who = join(store)
    beat(store, who, tasks_done=5)
    store.registry.end(who.worker_id, who.incarnation, reason="drained")
    record = store.registry.register(registration(), nobody)
    assert record.status is WorkerStatus.ACTIVE
    assert record.tasks_done == 0
    assert record.stopped_at is None
    assert record.stop_reason is None
    assert record.terminating_at is None


def test_workers_with_the_same_pid_are_two(store: Storage) -> None:
    """Two containers in which the worker is pid 1 register side by side: a pid is no identity (PD03)."""
    join(store, "w-1", process=process(1))
    join(store, "w-2", process=process(1))
    assert [record.worker_id for record in store.registry.list()] == ["w-1", "w-2"]


def test_an_unknown_worker_is_none(store: Storage) -> None:
    """There is no record of a worker that never registered."""
    assert store.registry.get("nobody") is None
    assert store.registry.list() == ()


def test_draining_flags_an_active_worker_once(store: Storage) -> None:
    """An active worker is flagged with reason and deadline; flagging again is no transition."""
    join(store)
    assert store.registry.begin_drain("w", reason="scaled in", deadline=60)
    record = store.registry.get("w")
    assert record is not None
    assert record.status is WorkerStatus.TERMINATING
    assert record.stop_reason == "scaled in"
    assert record.terminating_at is not None
    assert record.drain_deadline_at == record.terminating_at + timedelta(seconds=60)
    assert not store.registry.begin_drain("w", reason="again")
    assert store.registry.get("w") == record


def test_draining_names_an_incarnation(store: Storage) -> None:
    """A drain of another life of the worker, or of no worker, flags nobody."""
    who = join(store)
    assert not store.registry.begin_drain("w", incarnation="another", reason="x")
    assert not store.registry.begin_drain("unknown", reason="x")
    assert store.registry.verify("w", who.incarnation).status is WorkerStatus.ACTIVE
    assert store.registry.begin_drain("w", incarnation=who.incarnation, reason="x")


def test_without_a_deadline_a_drain_waits(store: Storage) -> None:
    """A drain without a deadline stores none: the task in hand is waited for."""
    who = join(store)
    store.registry.begin_drain("w", reason="x")
    reply = beat(store, who)
    assert reply.status is WorkerStatus.TERMINATING
    assert reply.drain_deadline_at is None


@pytest.mark.parametrize("draining", [False, True])
def test_an_end_gives_back_what_is_held(store: Storage, draining: bool) -> None:
    """A worker that ends gives its claims back in the same transaction, without spending the attempts."""
    who, task = running_task(store)
    if draining:
        store.registry.begin_drain("w", reason="x")
    assert store.registry.end("w", who.incarnation, reason="stopped")
    record = store.registry.get("w")
    assert record is not None
    assert record.status is WorkerStatus.TERMINATED
    assert record.stop_reason == "stopped" or draining
    assert record.stopped_at is not None
    assert row(store, task.task_id).status is TaskStatus.PENDING
    assert row(store, task.task_id).attempt == 0


def test_an_end_happens_once(store: Storage) -> None:
    """Ending what has ended, or another life, is no transition and changes nothing (ST07)."""
    who = join(store)
    assert not store.registry.end("w", "another", reason="x")
    assert store.registry.end("w", who.incarnation, reason="first")
    before = store.registry.get("w")
    assert not store.registry.end("w", who.incarnation, reason="second")
    assert not store.registry.begin_drain("w", reason="x")
    assert store.registry.get("w") == before


def test_verify_only_reads(store: Storage) -> None:
    """Verifying says what the registry holds of one incarnation, and renews nothing."""
    who = join(store)
    age(store, 4)
    before = store.registry.get("w")
    reply = store.registry.verify("w", who.incarnation)
    assert reply.known
    assert reply.status is WorkerStatus.ACTIVE
    assert store.registry.get("w") == before
    assert not store.registry.verify("w", "another").known
    assert not store.registry.verify("unknown", who.incarnation).known


def test_verify_tells_pause_and_drain(store: Storage) -> None:
    """Verifying tells a worker that it is paused or was told to go."""
    who = join(store)
    execute(store, "UPDATE worker_registry SET paused = true")
    assert store.registry.verify("w", who.incarnation).paused
    store.registry.begin_drain("w", reason="x", deadline=9)
    reply = store.registry.verify("w", who.incarnation)
    assert reply.status is WorkerStatus.TERMINATING
    assert reply.drain_deadline_at is not None


def ids(store: Storage, **given: object) -> list[str]:
    """Return the ids of the workers that match."""
    return [record.worker_id for record in store.registry.list(WorkerFilter(**given))]  # type: ignore[arg-type]


def test_workers_are_listed_by_what_is_asked(store: Storage) -> None:
    """Workers are filtered by status, host, pool, group and capability, ordered by id."""
    join(store, "b", pool="images", capabilities={"gpu": 2}, group_id="g1")
    join(store, "a", process=replace(process(), host="host-b"), capabilities={"gp": 1})
    gone = join(store, "c")
    store.registry.end("c", gone.incarnation, reason="x")
    assert ids(store) == ["a", "b", "c"]
    assert ids(store, status=(WorkerStatus.ACTIVE,)) == ["a", "b"]
    assert ids(store, status=(WorkerStatus.TERMINATED, WorkerStatus.LOST)) == ["c"]
    assert ids(store, host="host-b") == ["a"]
    assert ids(store, pool="images") == ["b"]
    assert ids(store, group_id="g1") == ["b"]
    assert ids(store, capability="gpu") == ["b"]
    assert ids(store, capability="gpu", pool="default") == []


def test_a_capability_filter_takes_names_literally(store: Storage) -> None:
    """Signs that a pattern or a JSON path would read have no meaning in a capability filter."""
    join(store, "a", capabilities={"g.pu": 1, "x/y": 1})
    assert ids(store, capability="g.pu") == ["a"]
    assert ids(store, capability="x/y") == ["a"]
    for name in ("g_pu", "g%", '"', "x", "$", "g", "'"):
        assert ids(store, capability=name) == []


def test_workers_are_listed_by_freshness(store: Storage) -> None:
    """A heartbeat exactly at the given time counts as fresh, one millisecond before as stale."""
    join(store, "a")
    record = store.registry.get("a")
    assert record is not None
    at = record.last_heartbeat
    later = at + timedelta(milliseconds=1)
    assert ids(store, fresh_after=at) == ["a"]
    assert ids(store, fresh_after=later) == []
    assert ids(store, stale_before=at) == []
    assert ids(store, stale_before=later) == ["a"]


def test_only_old_ended_workers_are_pruned(store: Storage) -> None:
    """Pruning deletes ended workers past the retention, in bounded steps, and never a live one (LK09)."""
    for worker_id in ("a", "b", "c"):
        who = join(store, worker_id)
        store.registry.end(worker_id, who.incarnation, reason="x")
    join(store, "live")
    age(store, 3_600)
    assert store.registry.prune(3_601 + HEARTBEAT) == 0
    assert store.registry.prune(3_599, limit=2) == 2
    assert store.registry.prune(3_599, limit=2) == 1
    assert store.registry.prune(0) == 0
    assert ids(store) == ["live"]


def test_lost_workers_are_pruned_too(store: Storage) -> None:
    """A worker that was lost is pruned like one that ended in order."""
    join(store, "a")
    store.control.rescue(None, everybody)
    assert ids(store, status=(WorkerStatus.LOST,)) == ["a"]
    age(store, 100)
    assert store.registry.prune(99) == 1


def test_nobody_signs_another_worker_off(store: Storage) -> None:
    """A worker is signed off by its own life alone: whoever names another one, or an earlier one, changes nothing
    (AD13)."""
    mine, other = join(store, "a"), join(store, "b")
    before = store.registry.get("b")
    assert not store.registry.end("b", mine.incarnation, reason="forged")
    assert store.registry.get("b") == before
    assert store.registry.end("b", other.incarnation, reason="over")
    join(store, "b")
    assert not store.registry.end("b", other.incarnation, reason="late")


def test_the_owner_may_register(store: Storage) -> None:
    """Whoever owns the tables is not refused."""
    store.registry.check_right()
    join(store)
