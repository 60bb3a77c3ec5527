"""Registries and queues as large as is wanted, written by plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from fleet.domain.execution import Claimant
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import WorkerRegistration
from fleet.storage.interfaces import Storage

LEASE = 36_000.0

FILL = """
INSERT INTO work_queue (lane_id, queue, task, payload_json, status, rank, priority, available_at, created_at,
    finished_at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
SELECT l.lane_id, l.queue, l.task, '{}', :status, :rank, -:rank, :available_at, '2026-01-01T00:00:00.000Z',
    :finished_at
FROM n, claim_lane l WHERE l.lane_id = (SELECT max(lane_id) FROM claim_lane)
"""


def register(storage: Storage, name: str, handlers: tuple[str, ...] = ("work",)) -> Claimant:
    """Register a worker whose lease outlasts the run."""
    registration = WorkerRegistration(
        worker_id=name,
        incarnation=f"{name}-life",
        pool="default",
        process=ProcessIdentity(),
        heartbeat_seconds=LEASE / 10,
        lease_seconds=LEASE,
        handlers=handlers,
    )
    storage.registry.register(registration, lambda _: False)
    return Claimant(name, f"{name}-life", LEASE)


def multiply(database: Path, worker: str, names: Iterable[str]) -> None:
    """Copy a registered worker's row under other names, each a life of its own."""
    with closing(sqlite3.connect(database)) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(worker_registry)")]
        values = {"worker_id": ":name", "incarnation": ":name || '-life'"}
        selected = ", ".join(values.get(column, column) for column in columns)
        statement = (
            f"INSERT INTO worker_registry ({', '.join(columns)}) "
            f"SELECT {selected} FROM worker_registry WHERE worker_id = :worker"
        )
        connection.executemany(statement, ({"name": name, "worker": worker} for name in names))


def rows_of(task: NewTask, rows: int, status: str = "pending", rank: int = 0) -> Callable[[Storage, Path], None]:
    """Return what fills a database with rows like one task, which it enqueues first."""
    values = {
        "rows": rows,
        "status": status,
        "rank": rank,
        "available_at": "2099-01-01T00:00:00.000Z" if status == "scheduled" else None,
        "finished_at": "2026-01-01T00:00:00.000Z" if status == "done" else None,
    }

    def fill(storage: Storage, path: Path) -> None:
        storage.queue.enqueue([task])
        with closing(sqlite3.connect(path)) as connection:
            with connection:
                connection.execute(FILL, values)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    return fill
