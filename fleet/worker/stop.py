"""Orders to end an execution early, as an execution that ends by itself is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.domain.signals import StopReason

GRACE = 5.0
"""Seconds in which an execution that can be ended from within (a command, a coroutine) ends certainly, or is ended from
outside, with its worker."""


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
