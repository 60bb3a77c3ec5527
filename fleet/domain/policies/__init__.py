"""Policies: pure functions from a situation to the number of workers that there should be, one file each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.policies import (
    capability,
    drain_time,
    fixed,
    fixed_elastic,
    no,
    ratio,
    threshold,
    vanilla,
    waterfall,
)
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.setting import Setting
from fleet.domain.policies.situation import Situation
from fleet.errors import UsageError


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, as it is registered.

    Attributes:
        name: its name.
        advise: the pure function.
        settings: its own settings.
        is_elastic: whether its number follows the work.
        help: one line for people.
        check: raises UsageError where settings, complete, contradict each other.
    """

    name: str
    advise: Callable[[Situation], Advice]
    settings: tuple[Setting, ...] = ()
    is_elastic: bool = True
    help: str = ""
    check: Callable[[Mapping[str, Any]], None] | None = None


_POLICIES: dict[str, Policy] = {}


def register(policy: Policy) -> None:
    """Make a policy known; of two of one name the first stays, and UsageError is raised."""
    if _POLICIES.setdefault(policy.name, policy) is not policy:
        raise UsageError(f"policy {policy.name!r} exists already: give yours another name")


def known_policies() -> tuple[str, ...]:
    """Return the names of all registered policies, sorted."""
    return tuple(sorted(_POLICIES))


def policy(name: str) -> Policy:
    """Return the policy of this name; raise UsageError, listing the known ones, when there is none."""
    try:
        return _POLICIES[name]
    except KeyError:
        raise UsageError(f"policy {name!r} is unknown: use one of {', '.join(known_policies())}") from None


def follows_work(name: str) -> bool:
    """Return whether the numbers of a policy follow the work; of one that is not known here nobody can say no."""
    known = _POLICIES.get(name)
    return known is None or known.is_elastic


for _built_in in (
    Policy("no", no.advise, is_elastic=False, help="leave the number of workers as it is"),
    Policy("fixed", fixed.advise, fixed.SETTINGS, is_elastic=False, help="keep target_workers workers"),
    Policy(
        "drain_time",
        drain_time.advise,
        drain_time.SETTINGS,
        help="as many workers as do what waits within drain_time, by measured durations",
    ),
    Policy(
        "vanilla",
        vanilla.advise,
        vanilla.SETTINGS,
        help="tasks for each worker between lower_task_ratio and upper_task_ratio",
        check=ratio.check,
    ),
    Policy(
        "capability",
        capability.advise,
        capability.SETTINGS,
        help="tasks for each able worker between two ratios, for every capability set by itself",
        check=ratio.check,
    ),
    Policy(
        "fixed_elastic",
        fixed_elastic.advise,
        fixed_elastic.SETTINGS,
        help="as vanilla, on a primary adapter up to its limit, then on a secondary one",
        check=fixed_elastic.check,
    ),
    Policy(
        "waterfall",
        waterfall.advise,
        waterfall.SETTINGS,
        help="as vanilla, on adapters in an order, each up to its cap",
        check=ratio.check,
    ),
    Policy(
        "threshold",
        threshold.advise,
        threshold.SETTINGS,
        help="a step up when many tasks wait or CPUs are busy, a step down when workers are idle for long",
        check=threshold.check,
    ),
):
    register(_built_in)

BUILT_IN = known_policies()
"""The names of those that are always there."""

__all__ = [
    "BUILT_IN",
    "Advice",
    "Policy",
    "Setting",
    "Situation",
    "follows_work",
    "known_policies",
    "policy",
    "register",
]
