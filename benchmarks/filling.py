"""Databases with long histories and backlogs, filled fast: one real task is enqueued, and its row copied by SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fleet.config import locate
from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

CHUNK = 10_000
SATURATED = "saturated"

COPY = """
INSERT INTO work_queue ({columns}) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
SELECT {values} FROM work_queue w CROSS JOIN n WHERE w.id = :sample
"""
FINISHED = {
    "status": "'done'",
    "worker": "'earlier'",
    "incarnation": "'earlier'",
    "attempt": "1",
    "claim_token": "1",
    "claimed_at": "created_at",
    "started_at": "created_at",
    "finished_at": "created_at",
    "result_json": "'null'",
}


def created(path: Path) -> Storage:
    """Make a database and open it."""
    return open_storage(locate(str(path)), create=True)


def enqueue(storage: Storage, tasks: Sequence[NewTask]) -> list[int]:
    """Enqueue tasks, some thousands in a transaction; return their ids."""
    chunks = (tasks[start : start + CHUNK] for start in range(0, len(tasks), CHUNK))
    return [task_id for chunk in chunks for task_id in storage.queue.enqueue(chunk).ids]


def copies(storage: Storage, path: Path, task: NewTask, count: int, **changed: str) -> None:
    """Add `count` tasks like `task`; `changed` names SQL expressions for columns."""
    [sample] = enqueue(storage, [task])
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA cache_size=-500000")
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(work_queue)") if name != "id"]
    statement = COPY.format(columns=", ".join(columns), values=", ".join(changed.get(name, name) for name in columns))
    connection.execute(statement, {"count": count - 1, "sample": sample})
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def finished(storage: Storage, path: Path, count: int) -> None:
    """Add `count` tasks that were done, of the handler `mine`."""
    copies(storage, path, NewTask("mine"), count, **FINISHED)
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    # The sample itself is finished too: nobody is to claim it.
    assignments = ", ".join(f"{name} = {value}" for name, value in FINISHED.items())
    connection.execute(f"UPDATE work_queue SET {assignments} WHERE status = 'pending'")
    connection.close()


def saturated(storage: Storage, count: int) -> None:
    """Add `count` urgent tasks of the handler `mine` with one key, of which as many run as may: one, elsewhere."""
    storage.rules.set_limit(Limit(SATURATED, max_running=1))
    enqueue(storage, [NewTask("mine", priority=10, concurrency_key=SATURATED)] * count)
