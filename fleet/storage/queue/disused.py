"""Lanes that no task uses any more.

No index tells which lanes finished tasks are of (every enqueue would pay for it), so to find out reads the whole table:
outside the write lock, and in a few passes of many.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from fleet.storage.database import Database, Transaction
from fleet.storage.sql import Statement

LANE_AGE = 86_400.0
"""Seconds for which a lane stays in any case."""

PASSES = 60
"""Maintenance passes of which one looks for disused lanes."""

LANES_AT_ONCE = 20
"""Lanes that one pass deletes: SQLite reads the whole table for each, to see that no task refers to it."""

_PASS = Statement("SELECT epoch FROM maintenance WHERE id = 1")
_CANDIDATES = Statement(
    """SELECT l.lane_id FROM claim_lane l WHERE l.created_at < :before
        AND NOT EXISTS (SELECT 1 FROM work_queue q WHERE q.status = 'pending' AND q.lane_id = l.lane_id)
        AND NOT EXISTS (SELECT 1 FROM work_queue q WHERE q.status = 'blocked' AND q.lane_id = l.lane_id)"""
)
_USED = Statement("SELECT DISTINCT lane_id FROM work_queue")
_NEWEST = Statement("SELECT coalesce(max(id), 0) FROM work_queue")
# On SQLite ids rise with the commits: older tasks than the newest were seen by the read.
_DELETE = Statement(
    """DELETE FROM claim_lane WHERE lane_id = :lane
        AND NOT EXISTS (SELECT 1 FROM work_queue q WHERE q.id > :newest AND q.lane_id = :lane)""",
    """DELETE FROM claim_lane WHERE lane_id = :lane AND :newest IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM work_queue q WHERE q.lane_id = :lane)""",
)


def forget_lanes(database: Database, limit: int) -> int:
    """Delete some lanes without tasks that are older than a day, a transaction each, if it is this pass's turn."""
    disused, newest = database.read(_look)
    return sum(
        database.write(partial(_forget, lane=lane, newest=newest)) for lane in disused[: min(limit, LANES_AT_ONCE)]
    )


def _look(transaction: Transaction) -> tuple[list[int], int]:
    if int(transaction.value(_PASS) or 0) % PASSES:
        return [], 0
    before = transaction.now - timedelta(seconds=LANE_AGE)
    candidates = [lane for (lane,) in transaction.rows(_CANDIDATES, before=before)]
    if not candidates:
        return [], 0
    used = {lane for (lane,) in transaction.rows(_USED)}
    return [lane for lane in candidates if lane not in used], int(transaction.value(_NEWEST))


def _forget(transaction: Transaction, lane: int, newest: int) -> int:
    return transaction.touched(_DELETE, lane=lane, newest=newest)
