"""Lanes, interned: each combination of queue, handler and capability set gets an id when it is first met."""

from __future__ import annotations

from fleet.domain.lanes import MAX_CAPABILITY_SETS
from fleet.errors import UsageError
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement

_LANE = Statement(
    """SELECT lane_id FROM claim_lane WHERE queue = :queue AND task = :task AND capability_key = :key
    AND assigned_worker = :worker"""
)
_NEW_LANE = Statement(
    """INSERT INTO claim_lane (queue, task, capability_key, assigned_worker, created_at)
    VALUES (:queue, :task, :key, :worker, :now)
    ON CONFLICT DO NOTHING"""
)
# Workers learn new lanes by the largest id, so ids must become visible in order.
_LANES_IN_ORDER = Statement("SELECT 1", "SELECT pg_advisory_xact_lock(7021004002)")
_CAPABILITY_SETS = Statement("SELECT count(DISTINCT capability_key) FROM claim_lane")
_SET_IS_KNOWN = Statement("SELECT 1 FROM claim_lane WHERE capability_key = :key LIMIT 1")


def lane_of(transaction: Transaction, lane: tuple[str, str, str], known: dict[tuple[str, str, str], int]) -> int:
    """Return the lane's id, interning it when it is new."""
    if lane in known:
        return known[lane]
    known[lane] = intern(transaction, *lane)
    return known[lane]


def intern(transaction: Transaction, queue: str, task: str, key: str, worker: str = "") -> int:
    """Return the id of the lane of these, assigned to `worker` unless that is empty; new ones are made."""
    found = transaction.value(_LANE, queue=queue, task=task, key=key, worker=worker)
    if found is None:
        transaction.rows(_LANES_IN_ORDER)
        _check_capability_sets(transaction, key)
        transaction.rows(_NEW_LANE, queue=queue, task=task, key=key, worker=worker, now=transaction.now)
        found = transaction.value(_LANE, queue=queue, task=task, key=key, worker=worker)
    return int(found)


def _check_capability_sets(transaction: Transaction, key: str) -> None:
    if transaction.value(_SET_IS_KNOWN, key=key) is not None:
        return
    if int(transaction.value(_CAPABILITY_SETS)) >= MAX_CAPABILITY_SETS:
        raise UsageError(
            f"there are {MAX_CAPABILITY_SETS} different capability sets already: every one costs each claim; "
            "use few quantities (mem=8, 16, 32), not a number of its own for every task"
        )
