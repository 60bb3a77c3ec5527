"""Orders to end an execution early, as a handler that ends by itself is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    """Why an execution is to end before it has come to its end."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    CLAIM_LOST = "claim_lost"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to end now.

    Attributes:
        reason: why.
        by: boot time in seconds at which what has not ended by itself is ended from outside, with its worker.
        timeout: the seconds that it had, where these are over.
    """

    reason: StopReason
    by: float
    timeout: float = 0.0
