"""Policies: pure functions from a situation to the number of workers that there should be, one file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.domain.policies import fixed, no
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
    """

    name: str
    advise: Callable[[Situation], Advice]
    settings: tuple[Setting, ...] = ()
    is_elastic: bool = True
    help: str = ""


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
):
    register(_built_in)


__all__ = ["Advice", "Policy", "Setting", "Situation", "follows_work", "known_policies", "policy", "register"]
