"""A large fleet: what a pass reads and writes of it is bounded, and nothing is waited for to find nothing to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.maintenance import health, run_pass
from fleet.storage.interfaces import Storage
from fleet.storage.queue import disused
from fleet.storage.sql import Runner, Statement
from tests.ageing import age
from tests.storage.conformance.test_health import WELL, events
from tests.storage.samples import enqueue, execute, holder, join, nobody

DAY = 86_400.0
ENQUEUE = Statement(
    """INSERT INTO work_queue (lane_id, queue, task, status, rank, priority, created_at)
    VALUES (:lane, 'unused', 't', 'pending', 0, 0, :now)"""
)


class Statements:
    """Counts the statements that this process runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        run = Runner._execute

        def counted(runner: Runner, *arguments: Any) -> Any:
            self.number += 1
            return run(runner, *arguments)

        monkeypatch.setattr(Runner, "_execute", counted)


def fill(store: Storage, workers: int, host: str = "far") -> None:
    """Register so many workers that are well, and let one task wait for each."""
    for number in range(workers):
        registration = WorkerRegistration(
            worker_id=f"{host}-{number:03}",
            incarnation=f"life-{host}-{number}",
            pool="default",
            process=ProcessIdentity(host, f"boot-{host}", "pid:[1]", number + 1, number + 1),
            heartbeat_seconds=5.0,
            lease_seconds=20.0,
            handlers=("t",),
        )
        store.registry.register(registration, nobody)
    beat_all(store)
    store.queue.enqueue([NewTask("t")] * workers)


def beat_all(store: Storage, **given: Any) -> None:
    """Let every worker tell that it is well, but for what is given."""
    at = store.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = {"at": at, **WELL, **given}
    store.registry.beat([Beat(one.worker_id, one.incarnation, metadata=told) for one in store.registry.list()])


def passed(store: Storage) -> None:
    """Run a maintenance pass, which is due."""
    execute(store, "UPDATE maintenance SET last_pass_at = NULL")
    report = run_pass(store, holder("a:1", 1), nobody, ManualClock())
    assert report is not None
    assert report.errors == ()


def assessed(store: Storage) -> set[str]:
    """Return the ids of workers that were assessed."""
    return {worker.worker_id for worker in store.registry.list() if worker.health is not None}


# What is read and written


@pytest.mark.parametrize("workers", [60])
def test_a_pass_runs_as_many_statements_whoever_is_there(
    store: Storage, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """A pass that finds all well runs as many statements for 60 workers and tasks as for two."""
    counted = Statements(monkeypatch)
    numbers = []
    for more, host in ((2, "near"), (workers, "far")):
        fill(store, more, host)
        passed(store)
        beat_all(store)
        counted.number = 0
        passed(store)
        numbers.append(counted.number)
    assert numbers[0] == numbers[1] < 60


def test_a_large_fleet_is_assessed_in_parts(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more workers than a pass assesses each has its turn within as few passes as are needed for all."""
    monkeypatch.setattr(health, "ASSESSED_AT_ONCE", 4)
    fill(store, 10)
    sizes = []
    for _ in range(3):
        passed(store)
        sizes.append(len(assessed(store)))
    assert sizes[-1] == 10
    assert max(after - before for before, after in zip([0, *sizes], sizes, strict=False)) == 4


def test_a_part_of_the_workers_is_told_apart_from_all(store: Storage) -> None:
    """A part says whether it is everybody, is no larger than asked for, and turn after turn it is somebody else's."""
    fill(store, 5)
    whole = store.health.part(7, 5)
    assert (len(whole.workers), whole.is_all) == (5, True)
    parts = [store.health.part(turn, 2) for turn in range(3)]
    assert [part.is_all for part in parts] == [False] * 3
    names = [worker.worker_id for part in parts for worker in part.workers]
    assert len(names) == len(set(names)) == 5
    assert max(len(part.workers) for part in parts) == 2
    assert store.health.part(3, 2) == parts[0]


def test_many_verdicts_are_written_in_batches(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the health of many changes at once, no transaction writes more than a batch of it."""
    monkeypatch.setattr(health, "RECORDED_AT_ONCE", 3)
    batches: list[int] = []
    record = store.health.record
    monkeypatch.setattr(
        store.health, "record", lambda changes: batches.append(len(changes)) or record(changes), raising=False
    )
    fill(store, 7)
    passed(store)
    assert batches == [3, 3, 1]
    assert len(assessed(store)) == 7


def test_a_host_at_fault_is_found_when_a_part_is_looked_at(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fails often is judged beside all of its host, whoever's turn it is: the host goes into quarantine."""
    monkeypatch.setattr(health, "ASSESSED_AT_ONCE", 3)
    fill(store, 4, "bad")
    fill(store, 8, "good")
    ids = enqueue(store, *[NewTask("t")] * 24).ids
    failing = {"recent": {"seconds": 600, "done": 0, "failed": 6}}
    at = store.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    bad = [worker for worker in store.registry.list() if worker.process.host == "bad"]
    store.registry.beat([Beat(one.worker_id, one.incarnation, metadata={"at": at, **WELL, **failing}) for one in bad])
    for number, task_id in enumerate(ids):
        execute(
            store,
            """INSERT INTO work_attempt (task_id, attempt, claim_token, worker, incarnation, outcome, error, started_at,
                ended_at) SELECT id, 1, 1, :worker, 'x', 'failed', 'broken', created_at, created_at
            FROM work_queue WHERE id = :id""",
            id=task_id,
            worker=bad[number % 4].worker_id,
        )
        execute(
            store,
            "UPDATE work_queue SET status = 'done', worker = 'good-000', finished_at = created_at WHERE id = :id",
            id=task_id,
        )
    for _ in range(4):
        passed(store)
    assert [subject for subject, _ in events(store, "quarantine_begun")] == ["bad"]


# What is found without the write lock


@pytest.fixture
def locked(sqlite_file: Storage, sqlite_path: Path) -> Iterator[Storage]:
    """Give a store whose write lock somebody else holds."""
    sqlite_file.database.busy_wait = 0.05  # type: ignore[attr-defined]
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield sqlite_file
    other.close()


def test_nothing_to_prune_takes_no_lock(locked: Storage) -> None:
    """Who finds nothing that ended long ago has waited for nobody."""
    for prune in (locked.control.prune, locked.registry.prune, locked.health.prune, locked.schedules.prune):
        assert prune(DAY, 100) == 0
    assert locked.queue.prune(DAY, 100) == 0
    assert locked.rules.prune(DAY, 100) == 0


def test_lanes_are_looked_for_in_a_few_passes(store: Storage) -> None:
    """A lane that nothing uses is deleted by one pass of many: to find it reads the whole table of tasks."""
    join(store)
    enqueue(store, NewTask("t", queue="unused"), NewTask("t", queue="used"))
    execute(store, "DELETE FROM work_queue WHERE queue = 'unused'")
    age(store, 2 * DAY)
    for epoch, left in ((1, 2), (disused.PASSES - 1, 2), (disused.PASSES, 1)):
        execute(store, "UPDATE maintenance SET epoch = :epoch", epoch=epoch)
        store.control.prune(7 * DAY)
        assert len(store.queue.lanes()) == left


def test_a_lane_that_is_used_again_stays(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that comes between the look for disused lanes and their deletion keeps its lane."""
    enqueue(store, NewTask("t", queue="unused"))
    execute(store, "DELETE FROM work_queue")
    age(store, 2 * DAY)
    forget = disused._forget

    def enqueue_then_forget(transaction: Any, lane: int, newest: int) -> int:
        transaction.rows(ENQUEUE, lane=lane, now=transaction.now)
        return forget(transaction, lane, newest)

    monkeypatch.setattr(disused, "_forget", enqueue_then_forget)
    assert store.control.prune(7 * DAY) == 0
    assert [lane.queue for lane in store.queue.lanes()] == ["unused"]
