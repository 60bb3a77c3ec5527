"""Kinds of adapters, built in and installed: known by name, imported when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points

from fleet.adapters.base import Adapter, ArgumentsOf
from fleet.clock import Clock, SystemClock
from fleet.config import Location
from fleet.domain.adapters import Limits
from fleet.errors import UsageError

ENTRY_POINTS = "fleet.adapters"
"""The group in which an installed package names its kinds: NAME = "MODULE:KIND"."""

_BUILT_IN = {
    "native": "fleet.adapters.kinds:NATIVE",
    "webhook": "fleet.adapters.webhook:WEBHOOK",
}


@dataclass(frozen=True, slots=True)
class Option:
    """What a kind of adapter is told on its command line.

    Attributes:
        name: the long name, without dashes.
        help: what it is, in one line.
        required: whether it must be given.
        default: its value otherwise.
    """

    name: str
    help: str
    required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every kind of adapter is made from.

    Attributes:
        adapter_id: the id under which it works.
        location: the database that workers are to use.
        arguments_of: turns a template's options into arguments of `fleet-worker`.
        environment: of the adapter's process.
        limits: what its command line says; it goes before what the place says.
        clock: for waiting and time limits.
    """

    adapter_id: str
    location: Location
    arguments_of: ArgumentsOf
    environment: Mapping[str, str]
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of adapter.

    Attributes:
        name: what `fleet-adapter` calls it.
        help: what place it is, in one line.
        make: makes an adapter from its assignment and its options by name (those not given have their default, or are
            missing); raises UsageError when they make no sense.
        options: what it takes beyond what all kinds take.
    """

    name: str
    help: str
    make: Callable[[Assignment, Mapping[str, str]], Adapter]
    options: tuple[Option, ...] = ()


def kinds() -> dict[str, tuple[EntryPoint, ...]]:
    """Return where each kind is, by name; nothing of it is imported.

    More than one place is a name that several packages claim. A built-in kind keeps its name.
    """
    found = {name: (EntryPoint(name, value, ENTRY_POINTS),) for name, value in _BUILT_IN.items()}
    for entry in sorted(entry_points(group=ENTRY_POINTS)):
        if entry.name not in _BUILT_IN:
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return dict(sorted(found.items()))


def load_kind(name: str) -> Kind:
    """Import a kind and return it.

    Raises:
        UsageError: there is none of this name, several packages claim it, or what is installed cannot be used.
    """
    known = kinds()
    if name not in known:
        raise UsageError(f"adapter kind {name!r} is unknown: there are {', '.join(known)}")
    entry, *others = known[name]
    if others:
        places = ", ".join(_place(each) for each in known[name])
        raise UsageError(f"adapter kind {name!r} is claimed by {places}: uninstall all but one of them")
    return _loaded(entry)


def _loaded(entry: EntryPoint) -> Kind:
    try:
        kind = entry.load()
    # An installed package may do anything when it is imported, even exit.
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"adapter kind {entry.name!r}, {_place(entry)}: {type(error).__name__}: {reason}") from error
    if not isinstance(kind, Kind):
        raise UsageError(f"adapter kind {entry.name!r}, {_place(entry)}: it is no fleet.adapters.kinds.Kind")
    return kind


def _place(entry: EntryPoint) -> str:
    """Return where a kind is, for people."""
    return f"{entry.value} of {entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _native(assignment: Assignment, options: Mapping[str, str]) -> Adapter:
    from fleet.adapters.native import NativeAdapter

    return NativeAdapter(
        assignment.location,
        assignment.arguments_of,
        assignment.environment,
        assignment.adapter_id,
        assignment.limits,
    )


# Here and not beside its adapter: the scaler, which needs that at every pass, needs nothing of this module.
NATIVE = Kind("native", "processes of this host", _native)
