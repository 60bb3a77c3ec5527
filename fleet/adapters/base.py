"""What the fleet asks of a place where workers can be started.

A kind of place is one module: a class that does what `Adapter` says, and a `fleet.adapters.kinds.Kind` that tells how
one is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.domain.adapters import Limits
from fleet.domain.group import GroupRecord, Template
from fleet.domain.liveness import ProcessIdentity

# Variables by which a launch says in `fleet-worker` what it is to become.
GROUP_VARIABLE = "FLEET_GROUP_ID"
TOKEN_VARIABLE = "FLEET_LAUNCH_TOKEN"
ADAPTER_VARIABLE = "FLEET_ADAPTER_ID"
LOG_VARIABLE = "FLEET_LOG_PATH"

# Numbers that replies carry, those of HTTP.
NOT_FOUND = 404
REFUSED = 403
NO_CAPACITY = 429
LAUNCH_FAILED = 500
NONSENSE = 502
UNREACHABLE = 503
TIMED_OUT = 504

ArgumentsOf = Callable[[dict[str, Any]], list[str]]
"""Turns a template's options into arguments of `fleet-worker`; raises UsageError for what is none."""


class AdapterFailed(Exception):
    """A place did not do, or did not say, what it was asked; what stands there is as unknown as before.

    Attributes:
        code: a number for the reply's `error_code`.
    """

    def __init__(self, message: str, code: int = LAUNCH_FAILED) -> None:
        super().__init__(message)
        self.code = code


class LaunchFailed(AdapterFailed):
    """A group could not be started. Whatever comes up for it all the same is refused by its launch token.

    Attributes:
        may_stand: whether the place may have started it nevertheless: it is told to end it.
    """

    def __init__(self, message: str, code: int = LAUNCH_FAILED, *, may_stand: bool = False) -> None:
        super().__init__(message, code)
        self.may_stand = may_stand


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """Which adapter it is, and what its place can do.

    Attributes:
        adapter_id: its id; commands are addressed to it.
        kind: what kind of place it starts workers in.
        host: the host it runs on.
        limits: what its place can take.
        resizes: whether a group there can become smaller or larger; else it gets whole groups.
        lists: whether a group that `list_groups` does not return is certainly gone.
        problem: why its place cannot be asked at present, in one line; None when it can.
    """

    adapter_id: str
    kind: str
    host: str
    limits: Limits = field(default_factory=Limits)
    resizes: bool = False
    lists: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A group that was started and has not made contact yet.

    Attributes:
        process: its supervisor, if it is a process of this host.
        log_path: where its log goes on this host; None elsewhere.
        reference: what the place calls the group; None where it has no name of its own.
    """

    process: ProcessIdentity | None
    log_path: str | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A group that stands at a place.

    Attributes:
        group_id: the group it is, or is to become.
        launch_token: by which it is known, whoever started it.
        launch: where it is.
    """

    group_id: str
    launch_token: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class Ended:
    """A launch that ended at its place.

    Attributes:
        group_id: the group it was to become.
        exit_code: how it ended; negative is a signal, None is unknown.
        last_words: what it said in the end, where its log is not on this host.
    """

    group_id: str
    exit_code: int | None
    last_words: str | None = None


class Adapter(Protocol):
    """Starts and stops worker groups on one kind of place. It knows no database but the one it names to workers.

    Everything but `info` may raise AdapterFailed: the place cannot be asked, which says nothing about the group.
    """

    def info(self) -> AdapterInfo:
        """Return which adapter it is and what its place can take, as far as that is known without waiting long."""

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Start `group.target_size` workers, once per launch token; raise LaunchFailed when that is not possible."""

    def find_group(self, group: GroupRecord) -> Launch | None:
        """Return the launch that carries the group's token, if one is already there (a predecessor crashed)."""

    def resize_group(self, group: GroupRecord) -> bool:
        """Let the group have `group.target_size` workers from now on; return whether the place knows how, and it."""

    def stop_group(self, group: GroupRecord) -> bool:
        """End a group, in contact or not; return whether there was anything to end."""

    def list_groups(self) -> tuple[Standing, ...]:
        """Return the groups that stand at the place under this adapter's id, started by whichever of its processes."""

    def ended_groups(self) -> tuple[Ended, ...]:
        """Return launches that ended, each once, with their exit codes; nothing where the place does not tell."""
