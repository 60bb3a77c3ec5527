"""A database as large as a fleet gets: many registered workers in groups, many waiting tasks.

One worker of each kind is registered and beats through the storage interface; the others are copies of its row, written
in SQL. Workers are of other hosts, or, with `local`, of this one: their process is then its first one, which lives.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet import process
from fleet.config import locate
from fleet.domain.group import NewGroup
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

HEARTBEAT, LEASE = 3_600.0, 36_000.0
"""Seconds: nobody beats for the copies, and none of them is to be lost while it is measured."""

HANDLERS = ("fleet.echo", "fleet.fail", "fleet.noop", "fleet.sleep", "report", "resize", "thumbnail")
LANES = (("thumbnail", "images"), ("resize", "images"), ("report", "reports"), ("fleet.noop", "default"))

_COPY_WORKERS = """
INSERT INTO worker_registry ({columns})
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :workers - 1)
SELECT {values} FROM n, worker_registry w WHERE w.worker_id = :first
"""
_COPY_GROUPS = """
INSERT INTO worker_group ({columns})
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :groups - 1)
SELECT {values} FROM n, worker_group g WHERE g.group_id = :first
"""
_FILL = """
INSERT INTO work_queue (lane_id, queue, task, payload_json, status, rank, priority, created_at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :tasks)
SELECT l.lane_id, l.queue, l.task, '{"path":"' || n.i || '.png"}', 'pending', 0, 0, :now
FROM n JOIN claim_lane l ON l.lane_id = 1 + n.i % :lanes
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How large the database is to be.

    Attributes:
        workers: how many are registered.
        groups: how many groups they are in.
        tasks: how many wait.
        local: whether the workers are processes of this host.
    """

    workers: int = 10_000
    groups: int = 100
    tasks: int = 1_000_000
    local: bool = False

    def build(self, path: Path) -> None:
        """Make the database."""
        storage = open_storage(locate(str(path)), create=True)
        self._register_first(storage)
        storage.queue.enqueue([NewTask(task, queue=queue) for task, queue in LANES])
        storage.close()
        connection = sqlite3.connect(path)
        with connection:
            self._copy(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    @property
    def _process(self) -> ProcessIdentity:
        return process.identify(1) if self.local else ProcessIdentity("far", "another boot", "pid:[1]", 4_711, 815)

    def _register_first(self, storage: Storage) -> None:
        size = self.workers // self.groups
        storage.control.add_group(NewGroup("group-0", "default", size, "token-0", self._process, LEASE, {}))
        registration = WorkerRegistration(
            worker_id="worker-0",
            incarnation="life-0",
            pool="default",
            process=self._process,
            heartbeat_seconds=HEARTBEAT,
            lease_seconds=LEASE,
            group_id="group-0",
            capabilities={"gpu": 1.0},
            handlers=HANDLERS,
            version="0.1.0",
            log_path="/var/log/fleet/default.log",
            resources=metrics()["host"],
        )
        storage.registry.register(registration, lambda _: False)
        storage.registry.beat([Beat("worker-0", "life-0", tasks_done=1_234, metadata=metrics())])

    def _copy(self, connection: sqlite3.Connection) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        others = {
            "worker_id": "printf('worker-%05d', n.i)",
            "incarnation": "printf('life-%05d', n.i)",
            "group_id": f"'group-' || (n.i % {self.groups})",
        }
        _copy_rows(connection, _COPY_WORKERS, "worker_registry", others, workers=self.workers, first="worker-0")
        others = {"group_id": "'group-' || n.i", "launch_token": "'token-' || n.i"}
        if self.groups > 1:
            _copy_rows(connection, _COPY_GROUPS, "worker_group", others, groups=self.groups, first="group-0")
        if self.tasks > len(LANES):
            connection.execute(_FILL, {"tasks": self.tasks - len(LANES), "lanes": len(LANES), "now": now})


def _copy_rows(connection: sqlite3.Connection, text: str, table: str, others: dict[str, str], **values: Any) -> None:
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    shown = ", ".join(others.get(name, name) for name in names)
    connection.execute(text.format(columns=", ".join(names), values=shown), values)


def metrics(at: datetime | None = None) -> dict[str, Any]:
    """Return what a keeper tells of a worker with each beat."""
    now = (at or datetime.now(UTC)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    host = {
        "cpus": 16,
        "load_1m": 3.14,
        "memory_available_mb": 20_480,
        "memory_total_mb": 65_536,
        "disk_free_mb": 204_800,
        "disk_free_percent": 61.8,
    }
    return {
        "at": now,
        "host": host,
        "memory_limit_mb": 4_096.0,
        "rss_mb": 48.3,
        "cpu_percent": 12.5,
        "recent": {"seconds": 600.0, "done": 1_234, "failed": 3},
    }


def shape(path: Path) -> str:
    """Return in words what a database holds."""
    connection = sqlite3.connect(path)
    counts = [
        f"{connection.execute(f'SELECT count(*) FROM {table}').fetchone()[0]} {name}"
        for table, name in (("worker_registry", "workers"), ("worker_group", "groups"), ("work_queue", "tasks"))
    ]
    size = path.stat().st_size >> 20
    connection.close()
    return json.dumps(f"{', '.join(counts)}, {size} MiB").strip('"')
