"""Adding tasks: defaults, lanes, ids, keys, dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from fleet.domain.lanes import capability_key
from fleet.domain.rank import rank
from fleet.domain.retry import DEFAULT_MAX_ATTEMPTS
from fleet.domain.task import (
    INLINE_PAYLOAD_BYTES,
    BlockedReason,
    Enqueued,
    HandlerDefaults,
    NewTask,
    TaskStatus,
)
from fleet.errors import ConflictError
from fleet.storage.database import Transaction
from fleet.storage.guards import DEDUPE_OPEN
from fleet.storage.meta import age_ms
from fleet.storage.queue import batches
from fleet.storage.queue.edges import Edges
from fleet.storage.queue.entering import entrance
from fleet.storage.queue.handlers import defaults_of
from fleet.storage.queue.interning import lane_of
from fleet.storage.queue.limits import KeyGate
from fleet.storage.rows import dumps
from fleet.storage.sql import Row, Statement

_LAST_ID = Statement("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'work_queue'), 0)")
_NEXT_IDS = Statement("SELECT nextval(pg_get_serial_sequence('work_queue', 'id')) FROM generate_series(1, :count)")

_ALWAYS = ("id", "lane_id", "queue", "task", "status", "rank", "priority", "created_at", "max_attempts")
# NULL in most rows: what no task of a call has is left out of its statement, and costs nothing.
_SELDOM = (
    "payload_json",
    "blocked_reason",
    "available_at",
    "deadline_at",
    "retry_json",
    "timeout_seconds",
    "dedupe_key",
    "dedupe_scope",
    "idempotency_key",
    "concurrency_key",
    "requires_json",
    "prefers_json",
    "batch_id",
    "parent_id",
)


def _insert_text(columns: Iterable[str]) -> str:
    names = tuple(columns)
    return f"INSERT INTO work_queue ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


@lru_cache(maxsize=64)
def _inserting(seldom: tuple[str, ...]) -> Statement:
    return Statement(_insert_text((*_ALWAYS, *seldom)))


_INSERT_UNLESS_THERE = Statement(f"{_insert_text((*_ALWAYS, *_SELDOM))} ON CONFLICT DO NOTHING")
_INSERT_PAYLOAD = Statement("INSERT INTO work_payload (task_id, payload_json) VALUES (:id, :payload_json)")
_EXISTING_TEXT = f"""
    SELECT id FROM work_queue WHERE task = :task AND idempotency_key = {{idempotency}}
    UNION ALL
    SELECT id FROM work_queue WHERE task = :task AND dedupe_key = {{dedupe}} AND dedupe_key IS NOT NULL
        AND {DEDUPE_OPEN}
    LIMIT 1
    """
_EXISTING = Statement(
    _EXISTING_TEXT.format(idempotency=":idempotency_key", dedupe=":dedupe_key"),
    _EXISTING_TEXT.format(idempotency="CAST(:idempotency_key AS text)", dedupe="CAST(:dedupe_key AS text)"),
)

_KEY_ATTEMPTS = 5


def add_tasks(transaction: Transaction, tasks: Sequence[NewTask], *, blocked: BlockedReason | None = None) -> Enqueued:
    """Add tasks in the open transaction.

    Args:
        transaction: the open transaction.
        tasks: what to add.
        blocked: what all of them wait for, until somebody lets them in.

    Returns:
        Their ids in input order.

    Raises:
        UsageError: too many capability sets, or a task depends on what is not there.
        NotFound, ConflictError: a batch is not there, or closed.
    """
    batches.check_open(transaction, (task.batch_id for task in tasks if task.batch_id is not None))
    entry = _Entry(transaction, {task.task for task in tasks}, blocked)
    rows = [entry.row(task) for task in tasks]
    for row, task_id in zip(rows, _new_ids(transaction, len(rows)), strict=True):
        row["id"] = task_id
    edges = Edges(transaction)
    new = _insert(transaction, rows)
    for row, task in zip(rows, tasks, strict=True):
        edges.note(task, row["id"], is_new=not row["met"])
    edges.write(entry.gate)
    entry.gate.admit({row["concurrency_key"] for row in new if row["blocked_reason"] == BlockedReason.LIMIT})
    return Enqueued(tuple(row["id"] for row in rows), tuple(row["id"] for row in rows if row["met"]))


def _insert(transaction: Transaction, rows: Sequence[Row]) -> list[Row]:
    """Insert rows, and note in each whether its key was met (and by which id); return the new ones."""
    keyed = [row for row in rows if row["dedupe_key"] or row["idempotency_key"]]
    plain = [row for row in rows if not (row["dedupe_key"] or row["idempotency_key"])] if keyed else list(rows)
    for row in keyed:
        row["met"] = not _insert_keyed(transaction, row)
    if plain:
        used = tuple(name for name in _SELDOM if any(row[name] is not None for row in plain))
        transaction.many(_inserting(used), plain)
    new = [row for row in rows if not row["met"]]
    large = [{"id": row["id"], "payload_json": row["large_payload"]} for row in new if row["large_payload"] is not None]
    if large:
        transaction.many(_INSERT_PAYLOAD, large)
    return new


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


class _Entry:
    """From a task to its row: defaults, lane, rank, and the status with which it begins."""

    def __init__(self, transaction: Transaction, names: Iterable[str], blocked: BlockedReason | None) -> None:
        self.gate = KeyGate(transaction)
        self._transaction = transaction
        self._defaults = defaults_of(transaction, names)
        self._blocked = blocked
        self._age_ms = age_ms(transaction)
        self._lanes: dict[tuple[str, str, str], int] = {}
        # Most tasks of one call are alike: what they share is worked out once.
        self._shared: dict[Any, Row] = {}

    def row(self, task: NewTask) -> Row:
        """Return the task's row, without its id."""
        now = self._transaction.now
        available_at = task.at if task.delay is None else now + timedelta(seconds=task.delay)
        if available_at is not None and available_at <= now:
            available_at = None
        status, reason = self._entrance(task, available_at)
        large = len(task.payload_json) > INLINE_PAYLOAD_BYTES
        return {
            **self._alike(task),
            "payload_json": None if large else task.payload_json,
            "large_payload": task.payload_json if large else None,
            "met": False,
            "status": status,
            "blocked_reason": reason,
            "rank": rank(task.priority, now, self._age_ms),
            "priority": task.priority,
            "available_at": available_at,
            "created_at": now,
            "deadline_at": task.deadline,
            "dedupe_key": task.dedupe_key,
            "dedupe_scope": task.dedupe_scope if task.dedupe_key else None,
            "idempotency_key": task.idempotency_key,
            "concurrency_key": task.concurrency_key,
            "batch_id": task.batch_id,
            "parent_id": task.parent_id,
        }

    def _entrance(self, task: NewTask, available_at: datetime | None) -> tuple[str, str | None]:
        if self._blocked is not None:
            return TaskStatus.BLOCKED.value, self._blocked.value
        if task.depends_on:
            return TaskStatus.BLOCKED.value, BlockedReason.PARENTS.value
        status, reason = entrance(self.gate, available_at, task.concurrency_key, self._transaction.now)
        return status.value, None if reason is None else reason.value

    def _alike(self, task: NewTask) -> Row:
        """Return the columns that come of the handler's defaults."""
        likeness = (
            task.task,
            task.queue,
            task.max_attempts,
            task.timeout,
            task.retry,
            None if task.requires is None else tuple(sorted(task.requires.items())),
            None if task.prefers is None else tuple(sorted(task.prefers.items())),
        )
        found = self._shared.get(likeness)
        if found is None:
            found = self._shared[likeness] = self._with_defaults(task)
        return found

    def _with_defaults(self, task: NewTask) -> Row:
        defaults = self._defaults.get(task.task) or HandlerDefaults(task.task)
        queue = task.queue or defaults.queue or "default"
        requires = task.requires if task.requires is not None else (defaults.requires or {})
        retry = task.retry or defaults.retry
        return {
            "lane_id": lane_of(
                self._transaction, (queue, task.task, capability_key(requires, task.prefers)), self._lanes
            ),
            "queue": queue,
            "task": task.task,
            "max_attempts": next(
                n for n in (task.max_attempts, defaults.max_attempts, DEFAULT_MAX_ATTEMPTS) if n is not None
            ),
            "retry_json": dumps(retry.as_json()) if retry else None,
            "timeout_seconds": task.timeout if task.timeout is not None else defaults.timeout,
            "requires_json": json.dumps(dict(requires), sort_keys=True) if requires else None,
            "prefers_json": json.dumps(dict(task.prefers), sort_keys=True) if task.prefers else None,
        }
