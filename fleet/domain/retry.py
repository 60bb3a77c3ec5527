"""When a failed attempt is tried again: pure arithmetic, with the names of tenacity's wait strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fleet.domain.durations import MAX_SECONDS, parse_duration
from fleet.errors import UsageError

DEFAULT_MAX_ATTEMPTS = 3
MAX_INTERRUPTIONS = 10
MAX_DELAYS = 100

Wait = Literal["random_exponential", "exponential", "fixed", "incrementing", "chain"]
WAITS = ("random_exponential", "exponential", "fixed", "incrementing", "chain")

_MOST_DOUBLINGS = 1_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait before the next attempt; times in seconds.

    Attributes:
        wait: `random_exponential` draws uniformly between 0 and the exponential bound (full jitter: AWS Architecture
            Blog, "Exponential Backoff And Jitter"); `exponential` is that bound itself; `fixed` is `multiplier`;
            `incrementing` is `start`, and `increment` more with each attempt; `chain` is `delays` one after the other,
            the last again and again.
        multiplier: the exponential bound after the first attempt, or the fixed wait.
        max: the cap.
        min: the least.
        exp_base: what the exponential bound is multiplied by with each attempt.
        start: the first wait of `incrementing`.
        increment: what `incrementing` adds with each attempt.
        delays: the waits of `chain`.
        jitter: up to so much is added at random; the cap holds all the same.
    """

    wait: Wait = "random_exponential"
    multiplier: float = 1.0
    max: float = 600.0
    min: float = 0.0
    exp_base: float = 2.0
    start: float = 0.0
    increment: float = 100.0
    delays: tuple[float, ...] = ()
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.wait not in WAITS:
            raise UsageError(f"retry wait {self.wait!r}: use {', '.join(WAITS[:-1])} or {WAITS[-1]}")
        if not (0 <= self.min <= self.max <= MAX_SECONDS and 0 <= self.multiplier <= self.max):
            raise UsageError(
                f"retry multiplier {self.multiplier:g} s, min {self.min:g} s, max {self.max:g} s: "
                "give 0 <= min, multiplier <= max <= ten years"
            )
        if not (1 <= self.exp_base <= 1_000 and 0 <= self.start <= MAX_SECONDS and 0 <= self.jitter <= MAX_SECONDS):
            raise UsageError("retry: give exp_base from 1 to 1000, start and jitter from 0 to ten years")
        if not 0 <= self.increment <= MAX_SECONDS:
            raise UsageError(f"retry increment {self.increment:g} s: give 0 to ten years")
        if (self.wait == "chain") != bool(self.delays) or len(self.delays) > MAX_DELAYS:
            raise UsageError(f"retry delays: give 1 to {MAX_DELAYS} of them, for the wait chain alone")
        if not all(0 <= delay <= MAX_SECONDS for delay in self.delays):
            raise UsageError("retry delays: give 0 to ten years each")

    def bound(self, attempt: int) -> float:
        """Return the longest wait in seconds after `attempt` (from 1), without jitter; never overflows."""
        attempt = max(1, attempt)
        if self.wait == "chain":
            return self.delays[min(attempt, len(self.delays)) - 1]
        if self.wait == "fixed":
            return self._capped(self.multiplier)
        if self.wait == "incrementing":
            return self._capped(self.start + self.increment * (attempt - 1))
        return self._capped(self._exponential(attempt))

    def _exponential(self, attempt: int) -> float:
        try:
            return float(self.multiplier * self.exp_base ** min(attempt - 1, _MOST_DOUBLINGS))
        except OverflowError:
            return self.max

    def _capped(self, seconds: float) -> float:
        return max(self.min, min(seconds, self.max))

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds after `attempt`; `random` returns a number in [0, 1)."""
        return self.drawn(self.bound(attempt), random)

    def drawn(self, wait: float, random: Callable[[], float]) -> float:
        """Return the wait in seconds of which `wait` is the bound; see `delay`."""
        if self.wait == "random_exponential":
            wait = self.min + (wait - self.min) * random()
        if not self.jitter:
            return wait
        return min(wait + self.jitter * random(), max(wait, self.max))

    def as_json(self) -> dict[str, Any]:
        """Return the value of `retry_json`: what differs from the default is in it, and always the first three."""
        value: dict[str, Any] = {"wait": self.wait, "multiplier": float(self.multiplier), "max": float(self.max)}
        for name, default in (("min", 0.0), ("exp_base", 2.0), ("start", 0.0), ("increment", 100.0), ("jitter", 0.0)):
            if getattr(self, name) != default:
                value[name] = float(getattr(self, name))
        if self.delays:
            value["delays"] = [float(delay) for delay in self.delays]
        return value

    @classmethod
    def of(cls, value: Any) -> RetryPolicy:
        """Return a policy as it is, the one whose fields an object has, or the chain of the waits in a list.

        Raises:
            TypeError: it is none of these, or has a field that there is not.
            ValueError: a field is no number.
            UsageError: a field makes no sense.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            fields = {str(name): _field(str(name), item) for name, item in value.items()}
            if fields.get("wait") == "fixed" and "max" not in fields:
                # A fixed wait is meant as it is written: the default cap is for those that grow.
                fields["max"] = max(600.0, fields.get("multiplier", 1.0))
            return cls(**fields)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return cls(wait="chain", delays=tuple(_seconds(item) for item in value))
        raise TypeError(f"{value!r} is no retry policy")

    @classmethod
    def from_json(cls, value: Any) -> RetryPolicy:
        """Return the policy that `retry_json` describes; None and unreadable content give the default."""
        if value is None or not isinstance(value, Mapping):
            return DEFAULT_RETRY
        known = {name: item for name, item in value.items() if name in cls.__dataclass_fields__}
        try:
            return cls.of(known)
        except (UsageError, TypeError, ValueError, OverflowError):
            return DEFAULT_RETRY


def _field(name: str, value: Any) -> Any:
    if name == "wait":
        return value
    if name == "delays":
        return tuple(_seconds(item) for item in value)
    return float(value) if name == "exp_base" else _seconds(value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is no number of seconds")
    return parse_duration(value) if isinstance(value, str) else float(value)


DEFAULT_RETRY = RetryPolicy()
