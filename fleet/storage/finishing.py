"""How claimed executions end: one fenced statement for any number of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.execution import Fence, Finish
from fleet.domain.lanes import Offer
from fleet.domain.task import TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.rows import lane_of, loads
from fleet.storage.sql import Statement
from fleet.storage.types import stamp

_SQLITE_ROWS = """SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.token') AS token,
        json_extract(value, '$.status') AS status, json_extract(value, '$.result') AS result,
        json_extract(value, '$.error') AS error, json_extract(value, '$.kind') AS kind,
        json_extract(value, '$.traceback') AS traceback, json_extract(value, '$.available') AS available,
        json_extract(value, '$.started') AS started, json_extract(value, '$.avoid') AS avoid
    FROM json_each(:finishes)"""
_POSTGRESQL_ROWS = """SELECT id, token, status, CAST(result AS json) AS result, error, kind, traceback, available,
        started, avoid
    FROM json_to_recordset(CAST(:finishes AS json)) AS r (id bigint, token bigint, status text, result text,
        error text, kind text, traceback text, available timestamptz, started timestamptz, avoid text)"""

_FINISH = """
UPDATE work_queue SET
    status = f.status,
    result_json = f.result,
    error = f.error,
    error_kind = f.kind,
    traceback = f.traceback,
    available_at = coalesce(f.available, available_at),
    started_at = CASE WHEN f.status = 'scheduled' THEN NULL ELSE coalesce(started_at, f.started) END,
    finished_at = CASE WHEN f.status = 'scheduled' THEN NULL ELSE CAST(:now AS {time}) END,
    worker = CASE WHEN f.status = 'scheduled' THEN NULL ELSE worker END,
    incarnation = CASE WHEN f.status = 'scheduled' THEN NULL ELSE work_queue.incarnation END,
    claimed_at = CASE WHEN f.status = 'scheduled' THEN NULL ELSE claimed_at END,
    avoid_worker = f.avoid
FROM ({rows}) f
WHERE work_queue.id = f.id AND work_queue.claim_token = f.token
    AND work_queue.status = 'running' AND work_queue.incarnation = :incarnation
RETURNING work_queue.id, work_queue.claim_token
"""

_WRITE = Statement(
    _FINISH.format(rows=_SQLITE_ROWS, time="TEXT"), _FINISH.format(rows=_POSTGRESQL_ROWS, time="timestamptz")
)

_LANE = Statement(
    """SELECT l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id"""
)
_OTHERS = Statement(
    """SELECT worker_id, handlers_json, queues_json, capabilities_json FROM worker_registry
    WHERE status = 'active' AND worker_id <> :worker AND lease_expires_at > :now LIMIT 200"""
)


def write_finishes(
    transaction: Transaction, worker_id: str, incarnation: str, finishes: Sequence[Finish]
) -> frozenset[Fence]:
    """Write how tasks ended; return the fences whose claim still held. The others' rows are not touched."""
    if not finishes:
        return frozenset()
    now = transaction.now
    rows = [_row(transaction, worker_id, finish, now) for finish in sorted(finishes, key=lambda f: f.fence.task_id)]
    written = transaction.rows(_WRITE, finishes=json.dumps(rows), incarnation=incarnation, now=now)
    return frozenset(Fence(task_id, token) for task_id, token in written)


def _row(transaction: Transaction, worker_id: str, finish: Finish, now: datetime) -> dict[str, Any]:
    retried = finish.status is TaskStatus.SCHEDULED
    return {
        "id": finish.fence.task_id,
        "token": finish.fence.claim_token,
        "status": finish.status,
        "result": finish.result_json,
        "error": finish.error,
        "kind": finish.error_kind,
        "traceback": finish.traceback,
        "available": stamp(now + timedelta(seconds=finish.retry_in or 0.0)) if retried else None,
        "started": stamp(now - timedelta(seconds=max(0.0, finish.started_seconds_ago))),
        "avoid": worker_id if retried and _another_serves(transaction, worker_id, finish.fence) else None,
    }


def _another_serves(transaction: Transaction, worker_id: str, fence: Fence) -> bool:
    """Return whether another live worker can take the task: only then is the one that just failed it passed over."""
    found = transaction.rows(_LANE, id=fence.task_id)
    if not found:
        return False
    lane = lane_of(found[0])
    others = transaction.rows(_OTHERS, worker=worker_id, now=transaction.now)
    return any(_offer(*row).serves(lane) for row in others)


def _offer(worker_id: str, handlers: str, queues: str, capabilities: str) -> Offer:
    return Offer(
        worker_id,
        frozenset(loads(handlers) or ()),
        tuple((str(queue), 0.0) for queue in loads(queues) or ()),
        loads(capabilities) or {},
    )
