from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.liveness import Gap
from fleet.domain.task import NewTask, TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import (
    LEASE,
    batch,
    beat,
    claim,
    claim_one,
    claimant_of,
    dead,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    finish,
    join,
    nobody,
    process,
    registration,
    row,
    running_task,
    statuses,
    success,
)

WAITING = (TaskStatus.PENDING, TaskStatus.SCHEDULED)


def status_of(store: Storage, worker_id: str) -> str:
    """Return a worker's stored status."""
    record = store.registry.get(worker_id)
    assert record is not None
    return str(record.status)


def test_a_silent_worker_is_lost_after_its_lease(store: Storage) -> None:
    """Within its lease a silent worker keeps its task; after it the worker is lost and the task waits (ST05, ST19)."""
    _, task = running_task(store, timeout=7_200.0)
    age(store, LEASE - 2)
    assert store.control.rescue(None, nobody) == ()
    assert row(store, task.task_id).status is TaskStatus.RUNNING
    age(store, 2.001)
    assert len(store.control.rescue(None, nobody)) == 1
    assert status_of(store, "w") == WorkerStatus.LOST
    assert row(store, task.task_id).status in WAITING


def test_the_leases_end_is_exact(memory: Storage) -> None:
    """At the instant of its lease's end a worker is believed, one millisecond later it is lost."""
    running_task(memory)
    age(memory, LEASE)
    assert memory.control.rescue(None, nobody) == ()
    age(memory, 0.001)
    assert len(memory.control.rescue(None, nobody)) == 1


def test_a_worker_proven_dead_is_lost_at_once(store: Storage) -> None:
    """Proof of death needs no lease, and touches no other worker (ST12)."""
    join(store, "a", process=process(1))
    join(store, "b", process=process(2))
    [verdict] = store.control.rescue(None, dead(1))
    assert "a" in verdict
    assert status_of(store, "a") == WorkerStatus.LOST
    assert status_of(store, "b") == WorkerStatus.ACTIVE


def test_the_living_are_not_swept(store: Storage) -> None:
    """Rescue leaves live workers, draining ones too, and their tasks alone (ST12)."""
    who, task = running_task(store)
    store.registry.begin_drain("w", reason="x")
    assert store.control.rescue(None, nobody) == ()
    assert finish(store, who, success(task)) == 1


def test_a_draining_worker_can_be_lost(store: Storage) -> None:
    """A worker that dies while it drains is lost like any other."""
    _, task = running_task(store)
    store.registry.begin_drain("w", reason="x")
    age(store, LEASE + 1)
    assert len(store.control.rescue(None, nobody)) == 1
    assert status_of(store, "w") == WorkerStatus.LOST
    assert row(store, task.task_id).status in WAITING


def test_a_verdict_names_its_evidence(store: Storage) -> None:
    """A verdict names worker, task, last beat and threshold (ST06)."""
    _, task = running_task(store, "worker-7")
    age(store, LEASE + 1)
    [verdict] = store.control.rescue(None, nobody)
    assert "worker-7" in verdict
    assert str(task.task_id) in verdict
    assert "20" in verdict
    assert "\n" not in verdict


def test_what_was_being_executed_is_charged(store: Storage) -> None:
    """A lost worker's started task keeps the attempt that it spent, and is no interruption (RT04)."""
    _, task = running_task(store)
    store.control.rescue(None, everybody)
    record = row(store, task.task_id)
    assert record.status in WAITING
    assert (record.attempt, record.interruptions) == (1, 0)
    assert record.worker is None
    assert record.error_kind is not None


def test_what_had_not_begun_is_not_charged(store: Storage) -> None:
    """Batched tasks that had not begun get the attempt back, and an interruption (RT08)."""
    who = join(store)
    started, *others = batch(store, who, 4)
    store.queue.start(who, started.fence)
    store.control.rescue(None, everybody)
    assert row(store, started.task_id).attempt == 1
    for task in others:
        record = row(store, task.task_id)
        assert record.status is TaskStatus.PENDING
        assert (record.attempt, record.interruptions) == (0, 1)


def test_the_last_attempt_of_a_lost_worker_fails(store: Storage) -> None:
    """A task that takes its worker with it at its last attempt ends as failed with a reason (RT04)."""
    _, task = running_task(store, max_attempts=1)
    store.control.rescue(None, everybody)
    record = row(store, task.task_id)
    assert record.status is TaskStatus.FAILED
    assert record.error
    assert record.finished_at is not None


def test_a_task_that_kills_its_workers_ends(store: Storage) -> None:
    """A task that is lost with every worker that claims it ends after its attempts (RT04, RT05)."""
    task_id = enqueue_one(store, max_attempts=3)
    deaths = 0
    while row(store, task_id).status in WAITING:
        who = join(store, f"w-{deaths}")
        age(store, 700)
        beat(store, who)
        store.queue.advance()
        claim_one(store, who)
        store.control.rescue(None, everybody)
        deaths += 1
        assert deaths <= 3
    assert deaths == 3
    assert row(store, task_id).status is TaskStatus.FAILED


def test_interruptions_by_loss_are_capped(store: Storage) -> None:
    """The eleventh loss of a task that never began condemns it (RT05)."""
    who = join(store)
    [task, _] = batch(store, who, 2)
    execute(store, "UPDATE work_queue SET interruptions = 10")
    store.control.rescue(None, everybody)
    record = row(store, task.task_id)
    assert record.status is TaskStatus.FAILED
    assert record.error_kind == "interrupted_too_often"


def test_rescue_happens_once(store: Storage) -> None:
    """A second and third rescue find nothing and change nothing (ST07, DX12)."""
    _, task = running_task(store)
    assert store.control.rescue(None, everybody)
    before = row(store, task.task_id), store.registry.list()
    assert store.control.rescue(None, everybody) == ()
    assert store.control.rescue(None, everybody) == ()
    assert (row(store, task.task_id), store.registry.list()) == before


def test_rescue_executes_nothing(store: Storage) -> None:
    """Rescued tasks wait to be claimed by anybody, in the usual order (DX12, DX13)."""
    who = join(store, "a")
    tasks = batch(store, who, 3)
    store.control.rescue(None, everybody)
    other = join(store, "b", process=process(200))
    got = [claim_one(store, other).task_id for _ in range(3)]
    assert got == [task.task_id for task in tasks]


def test_a_finished_task_is_not_rescued(store: Storage) -> None:
    """What a worker finished before it was lost stays done (ST07)."""
    who, task = running_task(store)
    finish(store, who, success(task))
    store.control.rescue(None, everybody)
    assert row(store, task.task_id).status is TaskStatus.DONE


@pytest.mark.parametrize("fate", ["missing", "terminated", "lost", "reborn"])
def test_an_orphan_is_rescued(store: Storage, fate: str) -> None:
    """A running task whose worker row is missing, ended, lost or of another life goes back (DX20, ST04)."""
    _, task = running_task(store)
    if fate == "missing":
        execute(store, "DELETE FROM worker_registry")
    elif fate == "reborn":
        execute(store, "UPDATE worker_registry SET incarnation = 'another life'")
    else:
        execute(store, f"UPDATE worker_registry SET status = '{fate}'")
    assert len(store.control.rescue(None, nobody)) == 1
    assert row(store, task.task_id).status in WAITING
    assert store.control.rescue(None, nobody) == ()


def test_one_broken_orphan_stops_nobody(store: Storage) -> None:
    """An orphan beyond its attempts ends as failed; those beside it are rescued (RT06)."""
    ids = enqueue(store, *[NewTask("t")] * 3).ids
    for number in range(3):
        claim_one(store, join(store, f"w{number}"))
    execute(store, f"UPDATE work_queue SET max_attempts = 1, attempt = 5 WHERE id = {ids[1]}")
    execute(store, "DELETE FROM worker_registry")
    while store.control.rescue(None, nobody):
        pass
    first, broken, last = statuses(store, ids)
    assert broken == "failed"
    assert {first, last} <= set(WAITING)


def test_of_several_that_were_executed_at_once_nobody_is_charged(store: Storage) -> None:
    """A lost worker that executed several tasks leaves them all uncounted, each to be executed alone; one that executed
    a single task is charged for it (RT08)."""
    several, single = join(store, "several", slots=2), join(store, "single")
    ids = enqueue(store, *[NewTask("t")] * 3).ids
    both = claim(store, replace(several, concurrent=True), 2)
    claim_one(store, single)
    assert [task.task_id for task in both] == list(ids[:2])
    assert all(row(store, task_id).started_at is not None for task_id in ids)
    age(store, LEASE + 1)
    while store.control.rescue(None, nobody):
        pass
    found = [row(store, task_id) for task_id in ids]
    assert [(task.attempt, task.interruptions) for task in found] == [(0, 1), (0, 1), (1, 0)]


def test_all_are_rescued_in_bounded_steps(store: Storage) -> None:
    """A pass with a limit leaves the rest to the next, until nobody is left (LK09)."""
    for number in range(5):
        who = join(store, f"w{number}")
        enqueue_one(store)
        claim_one(store, who)
    age(store, LEASE + 1)
    passes = 0
    while store.control.rescue(None, nobody, limit=2):
        passes += 1
        assert passes <= 5
    assert passes >= 3
    assert store.queue.totals().get("running", 0) == 0


def test_one_worker_with_many_tasks_is_rescued_whole(store: Storage) -> None:
    """A lost worker that held more tasks than a pass may touch loses all of them in the end."""
    who = join(store)
    batch(store, who, 25)
    for _ in range(30):
        if not store.control.rescue(None, everybody, limit=4):
            break
    assert store.queue.totals().get("running", 0) == 0
    assert store.queue.totals()["pending"] == 25


def test_the_living_do_not_crowd_out_the_lost(store: Storage) -> None:
    """Many live claims, older than one lost one, do not fill the pass: the lost one is found at once (ST16)."""
    alive = join(store, "alive")
    enqueue(store, *[NewTask("t")] * 30)
    claim(store, alive, 30)
    join(store, "lost", process=process(9))
    enqueue_one(store)
    lost = store.registry.get("lost")
    assert lost is not None
    claim_one(store, claimant_of(lost))
    [verdict] = store.control.rescue(None, dead(9), limit=1)
    assert "lost" in verdict


def test_the_gap_forgives_once(store: Storage) -> None:
    """Beats missed while nobody watched are forgiven for one lease after the gap, and no longer (CK03)."""
    running_task(store)
    age(store, 3_600)
    now = store.now()
    gap = Gap(now - timedelta(seconds=3_595), now)
    assert store.control.rescue(gap, nobody) == ()
    age(store, LEASE + 1)
    gap = Gap(gap.started_at - timedelta(seconds=LEASE + 1), gap.ended_at - timedelta(seconds=LEASE + 1))
    assert len(store.control.rescue(gap, nobody)) == 1


def test_the_overdue_before_a_gap_are_lost(store: Storage) -> None:
    """Who was overdue before the gap began is not forgiven by it."""
    join(store)
    age(store, 3_600)
    now = store.now()
    gap = Gap(now - timedelta(seconds=100), now)
    assert len(store.control.rescue(gap, nobody)) == 1


def test_a_gap_protects_nobody_proven_dead(store: Storage) -> None:
    """A process proven dead is lost whatever the gap."""
    join(store)
    now = store.now()
    assert len(store.control.rescue(Gap(now - timedelta(seconds=60), now), everybody)) == 1


def test_a_beat_in_time_saves(store: Storage) -> None:
    """A worker that beats after its lease ended, and before anybody judged it, is not lost."""
    who, task = running_task(store)
    age(store, LEASE + 5)
    assert beat(store, who, task).known
    assert store.control.rescue(None, nobody) == ()


def test_taking_over_rescues_like_rescue(store: Storage) -> None:
    """A restart under the same id puts its predecessor's tasks back, charged like any other loss (ST04)."""
    who = join(store)
    started, waiting = batch(store, who, 2)
    store.queue.start(who, started.fence)
    store.registry.register(registration(), everybody)
    assert row(store, started.task_id).attempt == 1
    assert row(store, started.task_id).status in WAITING
    assert (row(store, waiting.task_id).attempt, row(store, waiting.task_id).interruptions) == (0, 1)
