"""What a pass with given settings would decide, before they are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleet.domain.plan import Plan, decide
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.scaler.settings import NEW_POOL, applied_to
from fleet.storage.interfaces import ScalerPass, SettingsChange


def foreseen(
    stored: ScalerPass | None, change: SettingsChange, look: Callable[[PoolSettings], Snapshot]
) -> tuple[Snapshot, Plan]:
    """Return what is seen of a pool, and what is decided on it once `change` is stored.

    Args:
        stored: what is stored of the pool; None where there is no such pool.
        change: checked settings.
        look: reads what a decision with these settings is based on.
    """
    before = stored.settings if stored else NEW_POOL
    after = applied_to(before, change)
    told = change.template is not None and change.template != (stored.template if stored else None)
    # As storing will count it: launches that failed under other settings hold nothing back.
    version = max(1, before.version) + (after != before or told)
    snapshot = look(replace(after, version=version))
    return snapshot, decide(snapshot)
