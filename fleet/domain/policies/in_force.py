"""A pool's settings as they are in force: what was said, and defaults for the rest; and what may be said at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.domain import allocation, clamps
from fleet.domain.policies import fixed, policy
from fleet.domain.policies.columns import COLUMNS
from fleet.domain.policies.setting import Setting
from fleet.errors import UsageError


def table(name: str) -> Mapping[str, Setting]:
    """Return the settings that a pool of this policy has, by name: clamps, allocation, and the policy's own.

    A policy may have one of a clamp under the same name, with a default of its own.
    """
    return {each.name: each for each in (*clamps.SETTINGS, *allocation.SETTINGS, *policy(name).settings)}


def read_given(name: str, given: Mapping[str, object], stored: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return what is given for a pool of policy `name`, each value checked; None sets one back to its default.

    Args:
        name: the policy's name.
        given: values by name, as texts or JSON values.
        stored: what the pool has already; with it, what is given is checked together with that.

    Raises:
        UsageError: a name that this policy does not have (the nearest one is named), a value that cannot be, or one
            that contradicts another.
    """
    known = table(name)
    for key in given:
        if key not in known:
            # Every pass imports this module, and hardly one needs it.
            from difflib import get_close_matches

            near = get_close_matches(key, [*known, *COLUMNS], 1)
            hint = f": did you mean {near[0]}?" if near else f": there are {', '.join(sorted({*known, *COLUMNS}))}"
            raise UsageError(f"setting {key!r} is unknown to policy {name}{hint}")
    read = {key: known[key].value(value) for key, value in given.items()}
    in_force(name, {**(stored or {}), **read})
    return read


def in_force(name: str, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all settings of a pool: stored values, and defaults for the rest; what the policy has not is left out.

    Raises:
        UsageError: a stored value that cannot be, or values that contradict each other.
    """
    known = table(name)
    said = {key: setting.value(stored.get(key)) for key, setting in known.items()}
    complete = {key: known[key].default if value is None else value for key, value in said.items()}
    check = policy(name).check
    if check is not None:
        check(complete)
    return complete


def of_pool(pool: str, name: str, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all settings of a pool that has this policy, like `in_force`; errors name the pool, and what to do."""
    if name == fixed.NAME and fixed.target(stored) is None:
        raise UsageError(f"pool {pool}: {fixed.unreadable(stored)}")
    try:
        return in_force(name, stored)
    except UsageError as error:
        raise UsageError(f"pool {pool}: its setting {error}") from None


def merged(name: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of a pool of policy `name` once `given` is said as well.

    Values that this policy does not have are left out: they were another policy's. None sets one back to its default.
    """
    known = table(name)
    both = {**{key: value for key, value in stored.items() if key in known}, **given}
    return {key: value for key, value in both.items() if value is not None}
