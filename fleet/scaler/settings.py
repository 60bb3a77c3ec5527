"""Settings given to a pass: checked against what is stored before anything is written."""

from __future__ import annotations

from typing import TypeVar

from fleet.domain.policies import fixed, policy
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.storage.interfaces import SettingsChange

T = TypeVar("T")

MOST_WORKERS = 100_000
NEW_POOL = PoolSettings(policy="no", settings={}, version=0)
"""The settings of a pool that nobody has said anything about."""


def applied_to(stored: PoolSettings, change: SettingsChange) -> PoolSettings:
    """Return the settings that `change` makes of `stored`; what it does not give keeps its value."""
    return PoolSettings(
        policy=_given(change.policy, stored.policy),
        settings={**stored.settings, **(change.settings or {})},
        version=stored.version,
        min_workers=_given(change.min_workers, stored.min_workers),
        max_workers=_given(change.max_workers, stored.max_workers),
        max_launch_per_cycle=_given(change.max_launch_per_cycle, stored.max_launch_per_cycle),
    )


def _given(value: T | None, stored: T) -> T:
    return stored if value is None else value


def check_given(change: SettingsChange) -> None:
    """Raise UsageError when `change` makes no sense whatever is stored: a number that cannot be meant."""
    for option, value, least in _numbers(change):
        _check_number(option, value, least)
    if change.policy is not None:
        policy(change.policy)
    _check_clamps(change.min_workers or 0, change.max_workers)


def checked(pool: str, change: SettingsChange, stored: PoolSettings | None) -> SettingsChange:
    """Return `change` when it makes sense on top of what is stored for the pool.

    Raises:
        UsageError: a number that cannot be meant, a minimum above the maximum, `fixed` without a target.
    """
    check_given(change)
    result = applied_to(stored or NEW_POOL, change)
    _check_clamps(result.min_workers, result.max_workers)
    if result.policy == "fixed" and fixed.SETTING not in result.settings:
        if stored is not None and stored.policy == "fixed":
            raise UsageError(f"pool {pool}: {fixed.unreadable(result.settings)}")
        raise UsageError("policy fixed needs a number: give --target-workers N")
    return change


def _check_clamps(least: int, most: int | None) -> None:
    if most is not None and least > most:
        raise UsageError(
            f"a minimum of {least} workers is above the maximum of {most}: "
            "give --min-workers and --max-workers that agree"
        )


def _numbers(change: SettingsChange) -> list[tuple[str, int | None, int]]:
    target = (change.settings or {}).get("target_workers")
    return [
        ("--target-workers", target, 0),
        ("--min-workers", change.min_workers, 0),
        ("--max-workers", change.max_workers, 0),
        ("--max-launch-per-cycle", change.max_launch_per_cycle, 1),
    ]


def _check_number(option: str, value: int | None, least: int) -> None:
    if value is None or least <= value <= MOST_WORKERS:
        return
    what = "a negative number" if value < 0 else f"fewer than {least}" if value < least else "absurd"
    raise UsageError(f"{option} {value} is {what}: give {least} to {MOST_WORKERS}")
