"""The only place that reads a clock or sleeps.

Wall time (`Clock.now`) is for rows that other processes read. Durations inside one process use `Clock.boottime`,
which neither steps nor stops during a suspend (CLOCK_BOOTTIME).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What a component needs of time; tests pass one that they move by hand."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC, truncated to milliseconds (the precision of a row)."""

    def boottime(self) -> float:
        """Return seconds since boot, suspends included; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; negative values are taken as 0."""


def truncated(moment: datetime) -> datetime:
    """Return `moment` cut to milliseconds: rounding up could date a row after the event that reads it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Return seconds since boot, suspends included."""
    return time.clock_gettime(_BOOT_CLOCK)


class SystemClock:
    """The host's clock."""

    def __init__(self) -> None:
        self._last = (0, datetime.fromtimestamp(0, UTC))

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC, truncated to milliseconds."""
        milliseconds = time.time_ns() // 1_000_000
        last, moment = self._last
        if milliseconds != last:
            moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
            self._last = (milliseconds, moment)
        return moment

    def boottime(self) -> float:
        """Return seconds since boot, suspends included."""
        return boottime()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, at least 0."""
        time.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until it is moved; for tests and simulation."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = truncated(start or datetime(2026, 1, 1, tzinfo=UTC))
        self._boot = 1_000.0

    def now(self) -> datetime:
        """Return the time it was moved to."""
        return self._now

    def boottime(self) -> float:
        """Return the seconds it was moved by."""
        return self._boot

    def sleep(self, seconds: float) -> None:
        """Move on by `seconds` instead of waiting."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move wall time and boot time forward."""
        self._now = truncated(self._now + timedelta(seconds=seconds))
        self._boot += seconds

    def step(self, seconds: float) -> None:
        """Move wall time alone, as an administrator or NTP does; `seconds` may be negative."""
        self._now = truncated(self._now + timedelta(seconds=seconds))
