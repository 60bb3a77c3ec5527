"""Settings of the whole fleet: rows of `fleet_meta`."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.errors import UsageError
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement

_ROWS = {"age": ("age_ms", 1000.0), "retention": ("retention_seconds", 1.0)}
_GET = Statement("SELECT value FROM fleet_meta WHERE name = :name")
_SET = Statement(
    """INSERT INTO fleet_meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
)


def age_ms(transaction: Transaction) -> int:
    """Return how many milliseconds of waiting one step of priority is worth; 0 when priority alone decides."""
    return round((setting(transaction, "age") or 0.0) * 1000)


def setting(transaction: Transaction, name: str) -> float | None:
    """Return a setting in seconds; None when it is off, or unreadable."""
    row, unit = _row(name)
    try:
        value = float(transaction.value(_GET, name=row) or 0) / unit
    except ValueError:
        return None
    return value if value > 0 else None


def settings(transaction: Transaction) -> Mapping[str, float | None]:
    """Return all settings, by name."""
    return {name: setting(transaction, name) for name in sorted(_ROWS)}


def store(transaction: Transaction, name: str, seconds: float | None) -> None:
    """Store a setting; None turns it off."""
    row, unit = _row(name)
    transaction.rows(_SET, name=row, value=f"{round((seconds or 0.0) * unit)}")


def _row(name: str) -> tuple[str, float]:
    if name not in _ROWS:
        raise UsageError(f"setting {name!r}: there are {', '.join(sorted(_ROWS))}")
    return _ROWS[name]
