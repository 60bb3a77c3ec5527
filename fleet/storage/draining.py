"""Flagging workers to end, after what they execute."""

from __future__ import annotations

from datetime import timedelta

from fleet.storage.database import Transaction
from fleet.storage.events import record_event
from fleet.storage.sql import Statement

_DRAIN = Statement(
    """UPDATE worker_registry SET status = 'terminating', terminating_at = :now, stop_reason = :reason,
        drain_deadline_at = :deadline
    WHERE worker_id = :worker AND status = 'active'
        AND (CAST(:incarnation AS TEXT) IS NULL OR incarnation = :incarnation)"""
)


def drain(
    transaction: Transaction, worker_id: str, incarnation: str | None, reason: str, deadline: float | None
) -> bool:
    """Flag an active worker `terminating`; return whether it was active."""
    now = transaction.now
    flagged = transaction.touched(
        _DRAIN,
        worker=worker_id,
        incarnation=incarnation,
        now=now,
        reason=reason,
        deadline=None if deadline is None else now + timedelta(seconds=deadline),
    )
    if flagged:
        record_event(transaction, "worker_draining", worker_id, reason)
    return bool(flagged)
