"""When a failed attempt is tried again: pure arithmetic, with the names of tenacity's wait strategies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fleet.domain.durations import MAX_SECONDS
from fleet.errors import UsageError

DEFAULT_MAX_ATTEMPTS = 3
MAX_INTERRUPTIONS = 10

Wait = Literal["random_exponential", "exponential", "fixed"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait before the next attempt.

    Attributes:
        wait: `random_exponential` draws uniformly between 0 and the exponential bound (full jitter: AWS Architecture
            Blog, "Exponential Backoff And Jitter"); `exponential` is that bound itself; `fixed` is `multiplier`.
        multiplier: seconds: the bound after the first attempt, doubled with each further one.
        max: seconds: the cap.
    """

    wait: Wait = "random_exponential"
    multiplier: float = 1.0
    max: float = 600.0

    def __post_init__(self) -> None:
        if self.wait not in ("random_exponential", "exponential", "fixed"):
            raise UsageError(f"retry wait {self.wait!r}: use random_exponential, exponential or fixed")
        if not (0 <= self.multiplier <= self.max <= MAX_SECONDS):
            raise UsageError(
                f"retry multiplier {self.multiplier:g} s, max {self.max:g} s: give 0 <= multiplier <= max <= ten years"
            )

    def bound(self, attempt: int) -> float:
        """Return the longest wait in seconds after `attempt` (from 1); never overflows, never beyond the cap."""
        if self.wait == "fixed":
            return min(self.multiplier, self.max)
        doublings = min(max(attempt, 1) - 1, 64)
        return min(self.multiplier * 2.0**doublings, self.max)

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds after `attempt`; `random` returns a number in [0, 1)."""
        bound = self.bound(attempt)
        return bound * random() if self.wait == "random_exponential" else bound

    def as_json(self) -> dict[str, Any]:
        """Return the value of `retry_json`."""
        return {"wait": self.wait, "multiplier": float(self.multiplier), "max": float(self.max)}

    @classmethod
    def from_json(cls, value: Any) -> RetryPolicy:
        """Return the policy that `retry_json` describes; None and unreadable content give the default."""
        if not isinstance(value, dict):
            return DEFAULT_RETRY
        try:
            return cls(
                wait=value.get("wait", "random_exponential"),
                multiplier=float(value.get("multiplier", 1.0)),
                max=float(value.get("max", 600.0)),
            )
        except (UsageError, TypeError, ValueError, OverflowError):
            return DEFAULT_RETRY


DEFAULT_RETRY = RetryPolicy()
