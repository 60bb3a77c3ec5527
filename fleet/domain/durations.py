"""Durations and times as people write them: `30`, `30s`, `5m`, `2h`, `7d`; ISO 8601 with a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fleet.errors import UsageError

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
MAX_SECONDS = 3650 * 86400.0


def parse_duration(text: str) -> float:
    """Return seconds; raise UsageError unless `text` is a number with an optional unit ms, s, m, h or d."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"duration {text!r}: write 30, 30s, 5m, 2h or 7d")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > MAX_SECONDS:
        raise UsageError(f"duration {text!r}: at most ten years")
    return seconds


def parse_time(text: str) -> datetime:
    """Return an aware UTC time; raise UsageError when `text` is not ISO 8601 or names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"time {text!r}: write it like 2030-01-31T08:00:00+01:00 or 2030-01-31T07:00:00Z") from None
    if moment.tzinfo is None:
        raise UsageError(f"time {text!r} names no zone: add Z or an offset such as +01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"time {text!r} is beyond the calendar: give a year between 1 and 9999") from None


def format_seconds(seconds: float) -> str:
    """Return a short text such as `4.2s`, `3m10s`, `2h05m`."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
