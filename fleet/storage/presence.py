"""Who is still there. Every pass asks it of every live worker, so few columns are read, and no records are made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fleet.domain.liveness import Gap, ProcessIdentity, lease_is_over
from fleet.storage.database import Transaction
from fleet.storage.interfaces import ProvenDead
from fleet.storage.rows import PROCESS
from fleet.storage.sql import Statement, time_of

PRESENCE = f"{PROCESS}, lease_seconds, lease_expires_at, lease_expires_at < :now"
"""Columns of `worker_registry` from which `is_gone` judges, in its order; the statement is given the time as `now`."""

PRESENCE_WIDTH = 8

_LIVE = Statement(
    f"""SELECT {PRESENCE}, worker_id FROM worker_registry WHERE status IN ('active', 'terminating')
    ORDER BY worker_id"""
)


def is_gone(row: Sequence[Any], now: datetime, gap: Gap | None, proven_dead: ProvenDead) -> bool:
    """Return whether a live worker is lost: past its lease, or its process proven dead.

    Args:
        row: what PRESENCE names, first.
        now: the time of the verdict.
        gap: the last gap between maintenance passes.
        proven_dead: whether a process is certainly gone.
    """
    expired = bool(row[7])
    if expired and lease_is_over(time_of(row[6]), row[5], now, gap):
        return True
    return proven_dead(ProcessIdentity(*row[:5]))


def gone(transaction: Transaction, gap: Gap | None, proven_dead: ProvenDead, limit: int) -> list[str]:
    """Return the ids of live workers that are lost, at most `limit`."""
    now = transaction.now
    found = []
    for row in transaction.rows(_LIVE, now=now):
        if is_gone(row, now, gap, proven_dead):
            found.append(str(row[PRESENCE_WIDTH]))
            if len(found) == limit:
                break
    return found
