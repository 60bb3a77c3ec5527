"""What a policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.domain.reasons import Reason


@dataclass(frozen=True, slots=True)
class Advice:
    """How many workers there should be, and why; a policy advises, clamps and the plan decide.

    Attributes:
        workers: the number.
        reason: why, with a code for programs.
        adapters: of each adapter named here, at most so many of the pool's workers; in the order in which they are
            asked. Adapters that are not named get nothing. None leaves places to priority and room.
        requires: what workers that are to be started should offer, where that matters.
    """

    workers: int
    reason: Reason
    adapters: Mapping[str, int | None] | None = None
    requires: tuple[Mapping[str, float], ...] = field(default_factory=tuple)
