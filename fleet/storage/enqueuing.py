"""Adding tasks: defaults, lanes, ids, keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from fleet.domain.lanes import MAX_CAPABILITY_SETS, capability_key
from fleet.domain.retry import DEFAULT_MAX_ATTEMPTS
from fleet.domain.task import INLINE_PAYLOAD_BYTES, Enqueued, HandlerDefaults, NewTask
from fleet.errors import ConflictError, UsageError
from fleet.storage.database import Transaction
from fleet.storage.handlers import defaults_of
from fleet.storage.rows import dumps
from fleet.storage.sql import Statement

_LAST_ID = Statement("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'work_queue'), 0)")
_NEXT_IDS = Statement("SELECT nextval(pg_get_serial_sequence('work_queue', 'id')) FROM generate_series(1, :count)")

_INSERT_TEXT = """
INSERT INTO work_queue (id, lane_id, queue, task, payload_json, status, rank, priority, available_at, created_at,
    max_attempts, retry_json, timeout_seconds, dedupe_key, dedupe_scope, idempotency_key, requires_json)
VALUES (:id, :lane_id, :queue, :task, :payload_json, :status, :rank, :priority, :available_at, :created_at,
    :max_attempts, :retry_json, :timeout_seconds, :dedupe_key, :dedupe_scope, :idempotency_key, :requires_json)
"""
_INSERT = Statement(_INSERT_TEXT)
_INSERT_UNLESS_THERE = Statement(f"{_INSERT_TEXT} ON CONFLICT DO NOTHING")
_INSERT_PAYLOAD = Statement("INSERT INTO work_payload (task_id, payload_json) VALUES (:id, :payload_json)")
_EXISTING = Statement(
    """
    SELECT id FROM work_queue WHERE task = :task AND idempotency_key = :idempotency_key
    UNION ALL
    SELECT id FROM work_queue WHERE task = :task AND dedupe_key = :dedupe_key
        AND status IN ('blocked', 'scheduled', 'pending', 'running')
    LIMIT 1
    """,
    """
    SELECT id FROM work_queue WHERE task = :task AND idempotency_key = CAST(:idempotency_key AS text)
    UNION ALL
    SELECT id FROM work_queue WHERE task = :task AND dedupe_key = CAST(:dedupe_key AS text)
        AND status IN ('blocked', 'scheduled', 'pending', 'running')
    LIMIT 1
    """,
)

_LANE = Statement(
    """SELECT lane_id FROM claim_lane WHERE queue = :queue AND task = :task AND capability_key = :key
    AND assigned_worker = ''"""
)
_NEW_LANE = Statement(
    """INSERT INTO claim_lane (queue, task, capability_key, created_at) VALUES (:queue, :task, :key, :now)
    ON CONFLICT DO NOTHING"""
)
# Workers learn new lanes by the largest id, so ids must become visible in order.
_LANES_IN_ORDER = Statement("SELECT 1", "SELECT pg_advisory_xact_lock(7021004002)")
_CAPABILITY_SETS = Statement("SELECT count(DISTINCT capability_key) FROM claim_lane")
_SET_IS_KNOWN = Statement("SELECT 1 FROM claim_lane WHERE capability_key = :key LIMIT 1")

_KEY_ATTEMPTS = 5


def add_tasks(transaction: Transaction, tasks: Sequence[NewTask]) -> Enqueued:
    """Add tasks in the open transaction; return their ids in input order."""
    defaults = defaults_of(transaction, {task.task for task in tasks})
    lanes: dict[tuple[str, str, str], int] = {}
    rows = [_row(transaction, task, defaults.get(task.task), lanes) for task in tasks]
    for row, task_id in zip(rows, _new_ids(transaction, len(rows)), strict=True):
        row["id"] = task_id
    keyed = [row for row in rows if row["dedupe_key"] or row["idempotency_key"]]
    plain = [row for row in rows if not (row["dedupe_key"] or row["idempotency_key"])]
    inserted = [_insert_keyed(transaction, row) for row in keyed]
    new = [row for row, is_new in zip(keyed, inserted, strict=True) if is_new]
    existing = [row["id"] for row, is_new in zip(keyed, inserted, strict=True) if not is_new]
    transaction.many(_INSERT, plain)
    large = [
        {"id": row["id"], "payload_json": row["large_payload"]}
        for row in (*new, *plain)
        if row["large_payload"] is not None
    ]
    if large:
        transaction.many(_INSERT_PAYLOAD, large)
    return Enqueued(tuple(row["id"] for row in rows), tuple(existing))


def _new_ids(transaction: Transaction, count: int) -> Iterable[int]:
    if transaction.is_sqlite:
        # The write lock is held: nobody else can take these.
        last = int(transaction.value(_LAST_ID))
        return range(last + 1, last + 1 + count)
    return [int(row[0]) for row in transaction.rows(_NEXT_IDS, count=count)]


def _insert_keyed(transaction: Transaction, row: dict[str, Any]) -> bool:
    """Insert a task that has a key, or put the id of the one that has it into `row`; return whether it is new.

    The index decides. On PostgreSQL the insert waits for a transaction that holds the key; if the one that had it
    ends in between, the insert is tried again.
    """
    for _ in range(_KEY_ATTEMPTS):
        if transaction.touched(_INSERT_UNLESS_THERE, **row):
            return True
        found = transaction.value(
            _EXISTING, task=row["task"], idempotency_key=row["idempotency_key"], dedupe_key=row["dedupe_key"]
        )
        if found is not None:
            row["id"] = int(found)
            return False
    raise ConflictError(f"task {row['task']}: its key changed hands {_KEY_ATTEMPTS} times: enqueue it again")


def _row(
    transaction: Transaction,
    task: NewTask,
    defaults: HandlerDefaults | None,
    lanes: dict[tuple[str, str, str], int],
) -> dict[str, Any]:
    defaults = defaults or HandlerDefaults(task.task)
    queue = task.queue or defaults.queue or "default"
    requires = task.requires if task.requires is not None else (defaults.requires or {})
    retry = task.retry or defaults.retry
    large = len(task.payload_json) > INLINE_PAYLOAD_BYTES
    available_at = task.at
    if task.delay is not None:
        available_at = transaction.now + timedelta(seconds=task.delay)
    waits = available_at is not None and available_at > transaction.now
    return {
        "lane_id": _lane(transaction, (queue, task.task, capability_key(requires)), lanes),
        "queue": queue,
        "task": task.task,
        "payload_json": None if large else task.payload_json,
        "large_payload": task.payload_json if large else None,
        "status": "scheduled" if waits else "pending",
        "rank": -task.priority,
        "priority": task.priority,
        "available_at": available_at if waits else None,
        "created_at": transaction.now,
        "max_attempts": next(
            n for n in (task.max_attempts, defaults.max_attempts, DEFAULT_MAX_ATTEMPTS) if n is not None
        ),
        "retry_json": dumps(retry.as_json()) if retry else None,
        "timeout_seconds": task.timeout if task.timeout is not None else defaults.timeout,
        "dedupe_key": task.dedupe_key,
        "dedupe_scope": "open" if task.dedupe_key else None,
        "idempotency_key": task.idempotency_key,
        "requires_json": json.dumps(dict(requires), sort_keys=True) if requires else None,
    }


def _lane(transaction: Transaction, lane: tuple[str, str, str], known: dict[tuple[str, str, str], int]) -> int:
    """Return the lane's id, interning it when it is new."""
    if lane in known:
        return known[lane]
    queue, task, key = lane
    found = transaction.value(_LANE, queue=queue, task=task, key=key)
    if found is None:
        transaction.rows(_LANES_IN_ORDER)
        _check_capability_sets(transaction, key)
        transaction.rows(_NEW_LANE, queue=queue, task=task, key=key, now=transaction.now)
        found = transaction.value(_LANE, queue=queue, task=task, key=key)
    known[lane] = int(found)
    return known[lane]


def _check_capability_sets(transaction: Transaction, key: str) -> None:
    if transaction.value(_SET_IS_KNOWN, key=key) is not None:
        return
    if int(transaction.value(_CAPABILITY_SETS)) >= MAX_CAPABILITY_SETS:
        raise UsageError(
            f"there are {MAX_CAPABILITY_SETS} different capability sets already: every one costs each claim; "
            "use few quantities (mem=8, 16, 32), not a number of its own for every task"
        )
