"""The text form of times in SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=64)
def stamp(moment: datetime) -> str:
    """Return the one text form of a time: UTC, milliseconds, fixed width, so that it sorts."""
    # Cut, not rounded, to milliseconds; a third of the time that a format string takes.
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def moment_of(text: str) -> datetime:
    """Return the aware UTC time of a stored text."""
    return datetime.fromisoformat(text)
