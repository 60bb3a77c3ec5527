"""Settings given to a pass: checked together with what is stored, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from fleet.domain.policies import fixed, policy
from fleet.domain.policies.columns import COLUMNS
from fleet.domain.policies.in_force import in_force, merged, read_given
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.plugins import find_policy
from fleet.storage.interfaces import SettingsChange

T = TypeVar("T")

NEW_POOL = PoolSettings(policy="no", settings={}, version=0)
"""The settings of a pool that nobody has said anything about."""


def applied_to(stored: PoolSettings, change: SettingsChange) -> PoolSettings:
    """Return the settings that `change` makes of `stored`; what it does not give keeps its value."""
    name = _given(change.policy, stored.policy)
    said = change.policy is not None or change.settings
    return PoolSettings(
        policy=name,
        settings=merged(name, stored.settings, change.settings or {}) if said else stored.settings,
        version=stored.version,
        min_workers=_given(change.min_workers, stored.min_workers),
        max_workers=None if change.without_maximum else _given(change.max_workers, stored.max_workers),
        max_launch_per_cycle=_given(change.max_launch_per_cycle, stored.max_launch_per_cycle),
    )


def _given(value: T | None, stored: T) -> T:
    return stored if value is None else value


def change_of(values: Mapping[str, object]) -> SettingsChange:
    """Return the change that values by name make: `policy`, the columns, and settings as they were given.

    Values are texts or JSON values; `none` sets one back to its default. `target_workers` alone means policy `fixed`.

    Raises:
        UsageError: a bound that cannot be.
    """
    policy_name = values.get("policy")
    if policy_name is not None and not isinstance(policy_name, str):
        raise UsageError(f"policy {policy_name!r:.60} is no name of a policy")
    columns = {name: setting.value(values[name]) for name, setting in COLUMNS.items() if name in values}
    own = {name: value for name, value in values.items() if name != "policy" and name not in COLUMNS}
    if policy_name is None and fixed.SETTING in own:
        policy_name = "fixed"
    return SettingsChange(
        policy=policy_name,
        settings=own or None,
        min_workers=_column(columns, "min_workers"),
        max_workers=columns.get("max_workers"),
        max_launch_per_cycle=_column(columns, "max_launch_per_cycle"),
        without_maximum="max_workers" in columns and columns["max_workers"] is None,
    )


def _column(columns: Mapping[str, Any], name: str) -> int | None:
    """Return what is to stand in a column; None where nothing was said of it."""
    if name not in columns:
        return None
    value = columns[name]
    return int(COLUMNS[name].default if value is None else value)


def check_given(change: SettingsChange) -> None:
    """Raise UsageError when `change` makes no sense whatever is stored: a number that cannot be meant."""
    for name, value in _columns(change).items():
        if value is not None:
            COLUMNS[name].value(value)
    if change.policy is not None:
        find_policy(change.policy)
        read_given(change.policy, change.settings or {})
    _check_clamps(change.min_workers or 0, change.max_workers)


def _columns(change: SettingsChange) -> Mapping[str, int | None]:
    return {
        "min_workers": change.min_workers,
        "max_workers": change.max_workers,
        "max_launch_per_cycle": change.max_launch_per_cycle,
    }


def checked(pool: str, change: SettingsChange, stored: PoolSettings | None) -> SettingsChange:
    """Return `change` with its values read, when it makes sense on top of what is stored for the pool.

    Raises:
        UsageError: a name or value that cannot be, values that contradict each other, `fixed` without a target, a
            policy that is not known here.
    """
    before = stored or NEW_POOL
    name = _given(change.policy, before.policy)
    find_policy(name)
    if change.settings:
        change = replace(change, settings=read_given(name, change.settings, merged(name, before.settings, {})))
    check_given(change)
    result = applied_to(before, change)
    _check_clamps(result.min_workers, result.max_workers)
    if name == "fixed" and fixed.target(result.settings) is None:
        if stored is not None and stored.policy == "fixed":
            raise UsageError(f"pool {pool}: {fixed.unreadable(result.settings)}")
        raise UsageError("policy fixed needs a number: give --target-workers N")
    if change != SettingsChange():
        missing = [
            each.name for each in policy(name).settings if each.required and result.settings.get(each.name) is None
        ]
        if missing:
            raise UsageError(f"policy {name} needs {', '.join(missing)}: give it with --policy-content")
        in_force(name, result.settings)
    return change


def _check_clamps(least: int, most: int | None) -> None:
    if most is not None and least > most:
        raise UsageError(
            f"a minimum of {least} workers is above the maximum of {most}: "
            "give --min-workers and --max-workers that agree"
        )
