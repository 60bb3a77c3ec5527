"""`fixed`: a number that a person gave (`--target-workers`)."""

from __future__ import annotations

from fleet.domain.policies.advice import Advice
from fleet.domain.snapshot import Snapshot


def advise(snapshot: Snapshot, supply: int) -> Advice:
    """Return the setting `target_workers`."""
    target = int(snapshot.settings.settings.get("target_workers", 0))
    return Advice(target, f"fixed: target {target}")
