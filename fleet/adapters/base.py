"""What the fleet asks of a place where workers can be started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleet.domain.group import GroupRecord, Template
from fleet.domain.liveness import ProcessIdentity

# Numbers that replies carry, those of HTTP.
NOT_FOUND = 404
REFUSED = 403
LAUNCH_FAILED = 500


class LaunchFailed(Exception):
    """A group could not be started; nothing runs for it.

    Attributes:
        code: a number for the reply's `error_code`.
    """

    def __init__(self, message: str, code: int = LAUNCH_FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """Which adapter it is.

    Attributes:
        adapter_id: its id; commands are addressed to it.
        kind: what kind of place it starts workers in.
        host: the host it runs on.
    """

    adapter_id: str
    kind: str
    host: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A group that was started and has not made contact yet.

    Attributes:
        process: its supervisor.
        log_path: where its log goes; None when unknown.
    """

    process: ProcessIdentity
    log_path: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A launch that ended while its adapter watched.

    Attributes:
        group_id: the group it was to become.
        exit_code: how it ended; negative is a signal.
    """

    group_id: str
    exit_code: int


class Adapter(Protocol):
    """Starts and stops worker groups on one kind of place. It knows no database but the one it names to workers."""

    def info(self) -> AdapterInfo:
        """Return which adapter it is."""

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Start `group.target_size` workers; raise LaunchFailed when that is not possible."""

    def find_group(self, group: GroupRecord) -> Launch | None:
        """Return the launch that carries the group's token, if one is already there (a predecessor crashed)."""

    def stop_group(self, group: GroupRecord) -> bool:
        """End a launch that has made no contact; return whether there was anything to end."""

    def list_groups(self) -> tuple[str, ...]:
        """Return ids of the groups that this adapter started and still watches."""

    def ended_groups(self) -> tuple[Ended, ...]:
        """Return launches that ended since the last call, with their exit codes."""
