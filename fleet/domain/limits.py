"""Limits by key: how many tasks of one key may run at once, and how often one may start.

The rate is kept by the generic cell rate algorithm (ITU-T I.371): one time per key, moved at each start, says when the
next may follow. A start cannot be taken back, so nothing has to be repaired after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.errors import UsageError

MAX_RUNNING = 1_000_000
MAX_RATE_PER_SECOND = 1_000.0
"""Times are stored in milliseconds: starts closer than that cannot be told apart."""

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Limit:
    """A row of `limit_setting`.

    Attributes:
        key: a concurrency key, or `PREFIX*` for every key that begins so (each counted for itself).
        max_running: how many tasks of one key run at once, at most; None does not limit it.
        rate: how many start within `per_seconds`; None does not limit it.
        per_seconds: the time that `rate` is about.
        burst: how many may start at once after a pause; default 1.
    """

    key: str
    max_running: int | None = None
    rate: float | None = None
    per_seconds: float | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        if self.max_running is None and self.rate is None:
            raise UsageError(f"limit {self.key}: give a number of running tasks, a rate, or both")
        if self.max_running is not None and not 0 <= self.max_running <= MAX_RUNNING:
            raise UsageError(f"limit {self.key}: running {self.max_running}: give 0 to {MAX_RUNNING}")
        if (self.rate is None) != (self.per_seconds is None):
            raise UsageError(f"limit {self.key}: a rate is a number and a time, such as 10/60s")
        if self.burst is not None and (self.rate is None or not 1 <= self.burst <= MAX_RUNNING):
            raise UsageError(f"limit {self.key}: burst {self.burst}: give 1 to {MAX_RUNNING}, with a rate")
        if self.rate is not None and self.per_seconds is not None:
            self._check_rate(self.rate, self.per_seconds)

    def _check_rate(self, rate: float, per_seconds: float) -> None:
        if not (rate > 0 and per_seconds > 0):
            raise UsageError(f"limit {self.key}: a rate of {rate:g} in {per_seconds:g} s: give more than 0 of both")
        if rate / per_seconds > MAX_RATE_PER_SECOND:
            raise UsageError(f"limit {self.key}: more than {MAX_RATE_PER_SECOND:g} starts a second are not limited")

    @property
    def is_pattern(self) -> bool:
        """Whether it is about all keys that begin alike."""
        return self.key.endswith("*")

    def covers(self, key: str) -> bool:
        """Return whether it is about `key`."""
        return key.startswith(self.key[:-1]) if self.is_pattern else key == self.key

    @property
    def interval(self) -> timedelta:
        """The time between two starts at the full rate."""
        if self.rate is None or self.per_seconds is None:
            return timedelta(0)
        return timedelta(seconds=self.per_seconds / self.rate)

    @property
    def tolerance(self) -> timedelta:
        """How far ahead of the even rate a burst may run."""
        return self.interval * ((self.burst or 1) - 1)

    def may_start(self, next_allowed_at: datetime | None, now: datetime) -> bool:
        """Return whether the rate allows a start now."""
        return self.rate is None or next_allowed_at is None or now >= next_allowed_at

    def after_start(self, next_allowed_at: datetime | None, now: datetime) -> datetime:
        """Return when the next start is allowed, after one at `now`; never earlier than the rate says."""
        due = now if next_allowed_at is None else max(now, next_allowed_at + self.tolerance)
        return _rounded_up(due + self.interval - self.tolerance)


def _rounded_up(moment: datetime) -> datetime:
    rest = moment.microsecond % 1000
    return moment if rest == 0 else moment + _MILLISECOND - timedelta(microseconds=rest)


def limit_for(key: str, limits: Iterable[Limit]) -> Limit | None:
    """Return the limit in force for `key`: its own, else the pattern with the longest beginning, else None."""
    covering = [limit for limit in limits if limit.covers(key)]
    return max(covering, key=lambda limit: (not limit.is_pattern, len(limit.key)), default=None)
