"""Rows of workers and metrics as the tests of health need them, with few words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.domain.liveness import ProcessIdentity
from fleet.domain.worker import WorkerRecord, WorkerStatus

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
HEARTBEAT, LEASE = 5.0, 20.0

HOST = {
    "load_1m": 0.5,
    "cpus": 2,
    "memory_available_mb": 1000,
    "memory_total_mb": 4000,
    "disk_free_mb": 9000,
    "disk_free_percent": 45.1,
}
WELL = {
    "at": "2026-01-01T11:59:59.000Z",
    "cpu_percent": 97.5,
    "rss_mb": 120.5,
    "memory_limit_mb": 512,
    "host": HOST,
    "recent": {"seconds": 600, "done": 12, "failed": 0},
    "task_since": "2026-01-01T11:59:50.000Z",
}


def metrics(**given: Any) -> dict[str, Any]:
    """Return the metrics of a worker that is well, but for what is given."""
    return {**WELL, **given}


def on_host(**given: Any) -> dict[str, Any]:
    """Return the metrics of a worker that is well, but for what is given of its host."""
    return metrics(host={**HOST, **given})


def recent(done: int, failed: int, seconds: float = 600) -> dict[str, Any]:
    """Return the metrics of a worker that has finished so much lately."""
    return metrics(recent={"seconds": seconds, "done": done, "failed": failed})


def worker(name: str = "w", host: str = "h", beat_age: float = 1.0, age: float = 7200, **given: Any) -> WorkerRecord:
    """Return a live worker of handler `t` that started `age` seconds ago, with the metrics of one that is well."""
    beat = NOW - timedelta(seconds=beat_age)
    record = WorkerRecord(
        worker_id=name,
        incarnation=f"{name}-1",
        pool="default",
        status=WorkerStatus.ACTIVE,
        process=ProcessIdentity(host=host, pid=1),
        started_at=NOW - timedelta(seconds=age),
        last_heartbeat=beat,
        heartbeat_seconds=HEARTBEAT,
        lease_seconds=LEASE,
        lease_expires_at=beat + timedelta(seconds=LEASE),
        slots=1,
        current_task_id=None,
        group_id=None,
        adapter_id=None,
        capabilities={},
        queues=(),
        handlers=("t",),
        tasks_done=0,
        tasks_failed=0,
        idle_since=None,
        paused=False,
        terminating_at=None,
        drain_deadline_at=None,
        stopped_at=None,
        stop_reason=None,
        version=None,
        log_path=None,
        metadata=WELL,
    )
    return replace(record, **given)
