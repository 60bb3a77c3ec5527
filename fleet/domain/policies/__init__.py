"""Policies: pure functions from a situation to the number of workers that there should be, one file each."""

from __future__ import annotations

from importlib import import_module

from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import Setting
from fleet.domain.policies.situation import Situation
from fleet.errors import UsageError

_PLAIN = ("fixed", "no")
_ELASTIC = ("capability", "drain_time", "fixed_elastic", "threshold", "vanilla", "waterfall")
BUILT_IN = tuple(sorted((*_PLAIN, *_ELASTIC)))
"""The names of those that are always there; each is imported when it is wanted: cron's passes want one."""

_POLICIES: dict[str, Policy] = {}


def register(policy: Policy) -> None:
    """Make a policy known; of two of one name the first stays, and UsageError is raised."""
    if policy.name in BUILT_IN or _POLICIES.setdefault(policy.name, policy) is not policy:
        raise UsageError(f"policy {policy.name!r} exists already: give yours another name")


def known_policies() -> tuple[str, ...]:
    """Return the names of all policies that are built in or registered, sorted."""
    return tuple(sorted({*BUILT_IN, *_POLICIES}))


def policy(name: str) -> Policy:
    """Return the policy of this name; raise UsageError, listing the known ones, when there is none."""
    if name in BUILT_IN:
        found: Policy = import_module(f"{__name__}.{name}").POLICY
        return found
    try:
        return _POLICIES[name]
    except KeyError:
        raise UsageError(f"policy {name!r} is unknown: use one of {', '.join(known_policies())}") from None


def follows_work(name: str) -> bool:
    """Return whether the numbers of a policy follow the work; of one that is not known here nobody can say no."""
    known = _POLICIES.get(name)
    return name not in _PLAIN and (known is None or known.is_elastic)


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
