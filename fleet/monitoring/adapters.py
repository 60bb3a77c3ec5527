"""How an adapter is doing, spelled out: its row says `active` whether or not a process stands for it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from fleet.domain import adapters
from fleet.domain.adapters import AdapterRecord, AdapterStatus


class AdapterState(StrEnum):
    """How an adapter is doing.

    For a ready one a process stands and takes commands; a resting one runs from time to time, and will within its
    lease; one that backs off is asked for no workers for a while; a paused one until somebody resumes it. For one that
    is away nobody stands: its process has left, or never came, where the scaler of its host acts for it. A lost one's
    process has not left and is not there.
    """

    READY = "ready"
    RESTING = "resting"
    BACKING_OFF = "backing off"
    PAUSED = "paused"
    AWAY = "away"
    LOST = "lost"


def state_of(adapter: AdapterRecord, now: datetime, proven_dead: bool) -> AdapterState:
    """Return how an adapter is doing.

    Args:
        adapter: its row.
        now: the database's time.
        proven_dead: whether the process that stood for it last is certainly gone.
    """
    if adapter.status is AdapterStatus.PAUSED:
        return AdapterState.PAUSED
    if is_lost(adapter, now, proven_dead):
        return AdapterState.LOST
    if adapter.lease_expires_at is None:
        return AdapterState.AWAY
    if adapter.is_left_alone(now):
        return AdapterState.BACKING_OFF
    return AdapterState.RESTING if adapter.rests else AdapterState.READY


def is_lost(adapter: AdapterRecord, now: datetime, proven_dead: bool) -> bool:
    """Return whether the process that stood for an adapter is gone without having left; a paused one's may be, too."""
    return adapters.is_lost(adapter, now, lambda process: proven_dead)
