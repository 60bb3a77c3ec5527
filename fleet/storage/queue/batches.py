"""Batches in SQL: tasks counted together, and the task that follows their end."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.domain.batch import BatchRecord
from fleet.domain.task import TaskStatus
from fleet.errors import ConflictError, NotFound
from fleet.storage.database import Transaction
from fleet.storage.guards import OPEN
from fleet.storage.parameters import by_id, by_ids, ids_json
from fleet.storage.queue import dependencies
from fleet.storage.queue.entering import Entrant, enter
from fleet.storage.queue.limits import KeyGate
from fleet.storage.sql import Row, Statement, as_time, time_of

_COLUMNS = "batch_id, created_at, closed_at, ended_at, callback_id"
_GET = Statement(f"SELECT {_COLUMNS} FROM work_batch WHERE batch_id = :batch_id")
_NEWEST = Statement(f"SELECT {_COLUMNS} FROM work_batch ORDER BY created_at DESC, batch_id LIMIT :limit")
_COUNT = Statement("SELECT status, count(*) FROM work_queue WHERE batch_id = :batch_id GROUP BY status")
_CREATE = Statement(
    """INSERT INTO work_batch (batch_id, created_at, callback_id) VALUES (:batch_id, :now, :callback_id)
    ON CONFLICT DO NOTHING"""
)
_CLOSE = Statement("UPDATE work_batch SET closed_at = :now WHERE batch_id = :batch_id AND closed_at IS NULL")
# Of two last tasks that end at once on PostgreSQL, the later one waits here, and then sees the earlier.
_LOCK = Statement(
    "SELECT closed_at FROM work_batch WHERE batch_id = :batch_id",
    "SELECT closed_at FROM work_batch WHERE batch_id = :batch_id FOR UPDATE",
)
_STAYS_OPEN = Statement(
    "SELECT closed_at FROM work_batch WHERE batch_id = :batch_id",
    "SELECT closed_at FROM work_batch WHERE batch_id = :batch_id FOR SHARE",
)
_END = Statement(
    f"""UPDATE work_batch SET ended_at = :now WHERE batch_id = :batch_id AND closed_at IS NOT NULL AND ended_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM work_queue WHERE batch_id = :batch_id AND {OPEN})
    RETURNING callback_id"""
)
_CALLBACK = by_id(
    """SELECT id, available_at, concurrency_key FROM work_queue
    WHERE id = :id AND status = 'blocked' AND blocked_reason = 'batch'"""
)
_WAIT_FOR_PARENTS = by_id(
    """UPDATE work_queue SET blocked_reason = 'parents'
    WHERE id = :id AND status = 'blocked' AND blocked_reason = 'batch'"""
)


_AWAITING = by_ids("SELECT callback_id FROM work_batch WHERE ended_at IS NULL AND callback_id IN {ids}")


def awaiting(transaction: Transaction, task_ids: Iterable[int]) -> frozenset[int]:
    """Return those of these tasks that are to follow a batch that has not ended."""
    return frozenset(row[0] for row in transaction.rows(_AWAITING, ids=ids_json(sorted(task_ids))))


def create(transaction: Transaction, batch_id: str, callback_id: int | None) -> BatchRecord:
    """Make an open batch whose end is followed by the (blocked) task `callback_id`."""
    made = transaction.touched(_CREATE, batch_id=batch_id, now=transaction.now, callback_id=callback_id)
    if not made:
        raise ConflictError(f"batch {batch_id}: there is one of this id: give another, or add to it")
    return BatchRecord(batch_id, transaction.now, None, None, callback_id, {})


def check_open(transaction: Transaction, batch_ids: Iterable[str]) -> None:
    """Raise unless tasks may be added to these batches; they stay open until this transaction ends.

    Raises:
        NotFound: there is no such batch.
        ConflictError: it is closed.
    """
    for batch_id in sorted(set(batch_ids)):
        rows = transaction.rows(_STAYS_OPEN, batch_id=batch_id)
        if not rows:
            raise NotFound(f"batch {batch_id}: there is none of this id: make it first")
        if rows[0][0] is not None:
            raise ConflictError(f"batch {batch_id} is closed: nothing can be added to it")


def close(transaction: Transaction, batch_id: str) -> bool:
    """Say that nothing more is added; a batch without open tasks ends at once. False when it was closed before."""
    if not transaction.rows(_LOCK, batch_id=batch_id):
        raise NotFound(f"batch {batch_id}: there is none of this id")
    closed = transaction.touched(_CLOSE, batch_id=batch_id, now=transaction.now)
    if closed:
        end(transaction, KeyGate(transaction), [batch_id])
    return bool(closed)


def end(transaction: Transaction, gate: KeyGate, batch_ids: Iterable[str]) -> None:
    """End those of these batches that are closed and have no open task, and let their callbacks in."""
    for batch_id in sorted(set(batch_ids)):
        transaction.rows(_LOCK, batch_id=batch_id)
        for (callback_id,) in transaction.rows(_END, batch_id=batch_id, now=transaction.now):
            _follow(transaction, gate, callback_id)


def _follow(transaction: Transaction, gate: KeyGate, callback_id: int | None) -> None:
    if callback_id is None:
        return
    dependencies.hold_parents(transaction, [callback_id])
    if dependencies.waits(transaction, callback_id):
        transaction.rows(_WAIT_FOR_PARENTS, id=callback_id)
        return
    waiting = transaction.rows(_CALLBACK, id=callback_id)
    enter(transaction, gate, (Entrant(task_id, as_time(at), key) for task_id, at, key in waiting))


def get(transaction: Transaction, batch_id: str) -> BatchRecord | None:
    """Return one batch, its tasks counted."""
    row = transaction.record(_GET, batch_id=batch_id)
    return _record(transaction, row) if row else None


def newest(transaction: Transaction, limit: int) -> tuple[BatchRecord, ...]:
    """Return batches, newest first, their tasks counted."""
    return tuple(_record(transaction, row) for row in transaction.records(_NEWEST, limit=limit))


def _record(transaction: Transaction, row: Row) -> BatchRecord:
    counted = transaction.rows(_COUNT, batch_id=row["batch_id"])
    return BatchRecord(
        batch_id=row["batch_id"],
        created_at=time_of(row["created_at"]),
        closed_at=as_time(row["closed_at"]),
        ended_at=as_time(row["ended_at"]),
        callback_id=row["callback_id"],
        counts={TaskStatus(status): count for status, count in counted},
    )
