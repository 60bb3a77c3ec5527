"""`no`: leave the fleet as it is."""

from __future__ import annotations

from fleet.domain.policies.advice import Advice
from fleet.domain.snapshot import Snapshot


def advise(snapshot: Snapshot, supply: int) -> Advice:
    """Return the present supply."""
    return Advice(supply, "no policy: the number of workers is left as it is")
