"""Policies that installed packages bring: known by name, imported when somebody wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.policies import BUILT_IN, Policy, known_policies, policy, register
from fleet.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "fleet.policies"
"""The group in which an installed package names its policies: NAME = "MODULE:POLICY"."""


def find_policy(name: str) -> Policy:
    """Return the policy of this name, built in or installed; a built-in one costs no look at what is installed.

    Raises:
        UsageError: there is none, or the package that has it cannot be used; the message names the package.
    """
    if name in known_policies():
        return policy(name)
    found = [entry for entry in _entries() if entry.name == name]
    if len({_package(entry) for entry in found}) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in found))
        raise UsageError(f"policy {name} is brought by {packages}: uninstall one of them")
    if found:
        register(_loaded(found[0]))
        return policy(name)
    names = ", ".join(sorted({*known_policies(), *installed_policies()}))
    raise UsageError(f"policy {name!r:.60} is unknown here: use one of {names}, or install the package that has it")


def installed_policies() -> tuple[str, ...]:
    """Return the names of policies that packages bring, sorted; none of them is imported."""
    return tuple(sorted({entry.name for entry in _entries()} - set(BUILT_IN)))


def hidden_policies() -> tuple[str, ...]:
    """Return what packages bring under the name of a policy that is built in, as `NAME of PACKAGE`: never used."""
    return tuple(sorted(f"{entry.name} of {_package(entry)}" for entry in _entries() if entry.name in BUILT_IN))


def _entries() -> list[EntryPoint]:
    # Imported here: it takes longer than most passes do.
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))


def _loaded(entry: EntryPoint) -> Policy:
    try:
        found = entry.load()
        made = found() if callable(found) and not isinstance(found, Policy) else found
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"policy {entry.name} of {_package(entry)} cannot be loaded: {reason:.200}") from error
    if not isinstance(made, Policy):
        raise UsageError(f"policy {entry.name} of {_package(entry)}: {entry.value} is no fleet.domain.policies.Policy")
    if made.name != entry.name:
        raise UsageError(f"policy {entry.name} of {_package(entry)} calls itself {made.name!r:.60}: names must agree")
    return made


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown package"
