"""Deleting finished tasks: by a cursor over ids, so that finished rows need no index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fleet.domain.task import FINAL_STATUSES
from fleet.storage.database import Database, Transaction
from fleet.storage.guards import OPEN, status_in
from fleet.storage.parameters import by_ids, ids_json
from fleet.storage.queue import dependencies, history
from fleet.storage.sql import Statement, time_of
from fleet.storage.upkeep import return_pages

_CURSOR = Statement("SELECT prune_cursor FROM maintenance WHERE id = 1")
_MOVE_CURSOR = Statement("UPDATE maintenance SET prune_cursor = :cursor WHERE id = 1")
_END = Statement("SELECT id, created_at FROM work_queue WHERE id > :cursor ORDER BY id LIMIT 1 OFFSET :rows")
_OLD = Statement(
    f"""SELECT id FROM work_queue WHERE id > :cursor AND id <= :end AND {status_in(FINAL_STATUSES)}
        AND finished_at <= :cutoff ORDER BY id LIMIT :limit"""
)
# Kept: what an open task may still read the result of, whose dependents are not let go, and batches not ended.
_WANTED = by_ids(
    f"""SELECT q.id FROM work_queue q WHERE q.id IN {{ids}} AND (
        EXISTS (SELECT 1 FROM work_dependency d JOIN work_queue c ON c.id = d.child
            WHERE d.parent = q.id AND (d.satisfied = false OR c.{OPEN}))
        OR (q.batch_id IS NOT NULL AND EXISTS (SELECT 1 FROM work_batch b
            WHERE b.batch_id = q.batch_id AND b.ended_at IS NULL)))"""
)
# A task may have been retried since it was found: what belongs to it stays. A row that somebody holds is left to a
# later sweep.
_STILL_OVER_TEXT = f"SELECT id FROM work_queue WHERE id IN {{ids}} AND {status_in(FINAL_STATUSES)}"
_STILL_OVER = by_ids(_STILL_OVER_TEXT, f"{_STILL_OVER_TEXT} ORDER BY id FOR UPDATE SKIP LOCKED")
_DELETE_PAYLOADS = by_ids("DELETE FROM work_payload WHERE task_id IN {ids}")
_DELETE_STEPS = by_ids("DELETE FROM work_step WHERE task_id IN {ids}")
_DELETE_TASKS = by_ids("DELETE FROM work_queue WHERE id IN {ids}")
_DELETE_BATCHES = Statement(
    """DELETE FROM work_batch WHERE batch_id IN (SELECT b.batch_id FROM work_batch b
        WHERE b.ended_at < :cutoff AND NOT EXISTS (SELECT 1 FROM work_queue q WHERE q.batch_id = b.batch_id)
        ORDER BY b.batch_id LIMIT :limit)"""
)
_OLD_BATCH = Statement("SELECT 1 FROM work_batch WHERE ended_at < :cutoff LIMIT 1")
_OLD_STATE = Statement("SELECT 1 FROM limit_state WHERE next_allowed_at < :cutoff LIMIT 1")
_DELETE_STATES = Statement(
    "DELETE FROM limit_state WHERE key IN (SELECT key FROM limit_state WHERE next_allowed_at < :cutoff LIMIT :limit)"
)

LOOKS = 20
"""Rows that are looked at for each that may be deleted: what stays is passed over faster than it is written."""

_LAST_ID = (1 << 63) - 1


def prune(database: Database, older_than: float, limit: int) -> int:
    """Delete finished tasks that ended long ago, a bounded stretch of ids at a time; return how many.

    Ids rise with the time of their making: where a stretch ends with a task younger than the age, all behind it are,
    and the next stretch is the first again. A sweep through a week of young tasks would last longer than a week.
    """
    cursor = int(database.read(lambda transaction: transaction.value(_CURSOR)))
    old, after = database.read(lambda transaction: _scan(transaction, cursor, older_than, limit, only_old=True))
    if not old and cursor == after:
        return 0

    def delete(transaction: Transaction) -> int:
        transaction.rows(_MOVE_CURSOR, cursor=after)
        return _delete(transaction, old)

    return database.write(delete)


def prune_after(database: Database, cursor: int, older_than: float, limit: int) -> tuple[int, int]:
    """Delete what is old of the next stretch of ids; return how many, and where the next one begins (0: nowhere)."""
    old, after = database.read(lambda transaction: _scan(transaction, cursor, older_than, limit))
    return (database.write(lambda transaction: _delete(transaction, old)) if old else 0), after


def prune_around(database: Database, older_than: float, limit: int) -> int:
    """Delete batches and states of limits that nothing belongs to any more; return how many."""

    def old(transaction: Transaction) -> bool:
        cutoff = transaction.now - timedelta(seconds=older_than)
        return any(transaction.rows(statement, cutoff=cutoff) for statement in (_OLD_BATCH, _OLD_STATE))

    def delete(transaction: Transaction) -> int:
        cutoff = transaction.now - timedelta(seconds=older_than)
        return sum(
            transaction.touched(statement, cutoff=cutoff, limit=limit)
            for statement in (_DELETE_BATCHES, _DELETE_STATES)
        )

    return database.write(delete) if database.read(old) else 0


def _scan(
    transaction: Transaction, cursor: int, older_than: float, limit: int, *, only_old: bool = False
) -> tuple[list[int], int]:
    """Return the next finished tasks that are old enough, and where the cursor goes next."""
    now = transaction.now
    cutoff = now - timedelta(seconds=older_than)
    end = transaction.rows(_END, cursor=cursor, rows=LOOKS * limit - 1)
    last = end[0][0] if end else _LAST_ID
    old = [row[0] for row in transaction.rows(_OLD, cursor=cursor, end=last, cutoff=cutoff, limit=limit)]
    # At the end of the table the next pass begins at its start again.
    after = last if end and not (only_old and cutoff < time_of(end[0][1]) <= now) else 0
    if len(old) == limit:
        after = old[-1]
    wanted = {row[0] for row in transaction.rows(_WANTED, ids=ids_json(old))} if old else set()
    return [task_id for task_id in old if task_id not in wanted], after


def _delete(transaction: Transaction, old: Sequence[int]) -> int:
    over = [row[0] for row in transaction.rows(_STILL_OVER, ids=ids_json(old))] if old else []
    if not over:
        return 0
    ids = ids_json(over)
    for statement in (_DELETE_PAYLOADS, _DELETE_STEPS, history.FORGET):
        transaction.rows(statement, ids=ids)
    dependencies.forget(transaction, ids)
    deleted = transaction.touched(_DELETE_TASKS, ids=ids)
    if transaction.is_sqlite:
        return_pages(transaction)
    return deleted
