"""Policies: pure functions from a snapshot to the number of workers that there should be, one file each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleet.domain.policies import fixed, no
from fleet.domain.policies.advice import Advice
from fleet.domain.snapshot import Snapshot
from fleet.errors import UsageError

Policy = Callable[[Snapshot, int], Advice]


POLICIES: Mapping[str, Policy] = {"no": no.advise, "fixed": fixed.advise}


def policy(name: str) -> Policy:
    """Return the policy of this name; raise UsageError, listing the known ones, when there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise UsageError(f"policy {name!r} is unknown: use one of {', '.join(sorted(POLICIES))}") from None


__all__ = ["POLICIES", "Advice", "Policy", "policy"]
