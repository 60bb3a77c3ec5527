"""Deadlines: a task that has not begun by then is never begun."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.domain.task import TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import WAITING, leaving, status_in
from fleet.storage.parameters import by_ids, ids_json
from fleet.storage.queue.changed import CHANGED_COLUMNS, Changed
from fleet.storage.queue.follow_up import follow_up
from fleet.storage.sql import Statement

_PAST_TEXT = f"""SELECT id FROM work_queue
    WHERE deadline_at IS NOT NULL AND {status_in(WAITING)} AND deadline_at <= :now
    ORDER BY deadline_at LIMIT :limit"""
# Locked before they end: a child that was enqueued meanwhile is seen by the statement that ends its parent.
_PAST = Statement(_PAST_TEXT, f"{_PAST_TEXT} FOR UPDATE SKIP LOCKED")
_FAIL = by_ids(
    f"""UPDATE work_queue SET status = 'failed', blocked_reason = NULL, finished_at = :now,
        error = 'its deadline passed before it could begin', error_kind = 'deadline_exceeded'
    WHERE id IN {{ids}} AND {leaving(*WAITING, to=(TaskStatus.FAILED,))} AND deadline_at <= :now
    RETURNING {CHANGED_COLUMNS}"""
)


def past(transaction: Transaction, limit: int) -> list[int]:
    """Return tasks that wait although their deadline has passed."""
    return [row[0] for row in transaction.rows(_PAST, now=transaction.now, limit=limit)]


def fail(transaction: Transaction, ids: Iterable[int]) -> int:
    """End tasks whose deadline has passed, and what follows from it; return how many."""
    rows = transaction.rows(_FAIL, ids=ids_json(sorted(ids)), now=transaction.now)
    follow_up(transaction, map(Changed.of, rows))
    return len(rows)
