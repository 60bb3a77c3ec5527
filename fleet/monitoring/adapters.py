"""How an adapter is doing, spelled out: its row says `active` whether or not a process stands for it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from fleet.domain.adapters import AdapterRecord, AdapterStatus


class AdapterState(StrEnum):
    """How an adapter is doing.

    For a ready one a process stands and takes commands; one that backs off does, too, and is asked for no workers for a
    while; a paused one until somebody resumes it. For one that is away nobody stands: its process has left, or never
    came, where the scaler of its host acts for it. A lost one's process has not left and is not there.
    """

    READY = "ready"
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
    if adapter.lease_expires_at is None:
        return AdapterState.AWAY
    if is_lost(adapter, now, proven_dead):
        return AdapterState.LOST
    backs_off = adapter.backoff_until is not None and adapter.backoff_until > now
    return AdapterState.BACKING_OFF if backs_off else AdapterState.READY


def is_lost(adapter: AdapterRecord, now: datetime, proven_dead: bool) -> bool:
    """Return whether the process that stood for an adapter is gone without having left; a paused one's may be, too."""
    expires = adapter.lease_expires_at
    return expires is not None and (proven_dead or expires < now)
