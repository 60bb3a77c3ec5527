"""Worker groups, adapters and the commands between scaler and adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.lifecycle import LifeCycle
from fleet.domain.liveness import Gap, ProcessIdentity, lease_is_over
from fleet.domain.spreading import PULLED, Allocation

BOOT_DEADLINE = 60.0

SHUTDOWN_LIFETIME = 86_400.0
"""Seconds for which an order to shut a group down holds: its adapter may be away, and the place goes on meanwhile."""


class GroupStatus(StrEnum):
    """Where a worker group is in its life."""

    REQUESTED = "requested"
    LAUNCHING = "launching"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


BOOTING = (GroupStatus.REQUESTED, GroupStatus.LAUNCHING)
ENDED_GROUPS = (GroupStatus.STOPPED, GroupStatus.FAILED)
LIVE_GROUPS = (GroupStatus.REQUESTED, GroupStatus.LAUNCHING, GroupStatus.RUNNING)

GROUP_LIFE: LifeCycle[GroupStatus] = LifeCycle(
    "group",
    {
        GroupStatus.REQUESTED: frozenset(
            {
                GroupStatus.LAUNCHING,
                GroupStatus.RUNNING,
                GroupStatus.STOPPING,
                GroupStatus.STOPPED,
                GroupStatus.FAILED,
            }
        ),
        GroupStatus.LAUNCHING: frozenset(
            {GroupStatus.RUNNING, GroupStatus.STOPPING, GroupStatus.STOPPED, GroupStatus.FAILED}
        ),
        GroupStatus.RUNNING: frozenset({GroupStatus.STOPPING, GroupStatus.STOPPED, GroupStatus.FAILED}),
        GroupStatus.STOPPING: frozenset({GroupStatus.STOPPED, GroupStatus.FAILED}),
        GroupStatus.STOPPED: frozenset(),
        GroupStatus.FAILED: frozenset(),
    },
)


class CommandStatus(StrEnum):
    """Where a command is in its life."""

    PENDING = "pending"
    TAKEN = "taken"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class CommandKind(StrEnum):
    """What a command orders an adapter to do."""

    START_WORKER_GROUP = "start_worker_group"
    SHUTDOWN_WORKER_GROUP = "shutdown_worker_group"


COMMAND_LIFE: LifeCycle[CommandStatus] = LifeCycle(
    "command",
    {
        CommandStatus.PENDING: frozenset({CommandStatus.TAKEN, CommandStatus.EXPIRED, CommandStatus.CANCELLED}),
        CommandStatus.TAKEN: frozenset({CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.EXPIRED}),
        CommandStatus.SUCCEEDED: frozenset(),
        CommandStatus.FAILED: frozenset(),
        CommandStatus.EXPIRED: frozenset(),
        CommandStatus.CANCELLED: frozenset(),
    },
)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A row of `worker_group`.

    Attributes:
        group_id: its id.
        pool: the pool that it belongs to.
        adapter_id: the adapter that started it, None when a person did.
        target_size: how many workers its supervisor keeps.
        status: where it is in its life.
        launch_token: names the one launch that may become this group.
        process: its supervisor, once known.
        boot_deadline_at: when a launch without contact counts as failed.
        lease_expires_at: until when its keeper's last heartbeat is believed.
        reference: what its place calls it, where it has a name of its own there.
        stopped_at: when it ended.
    """

    group_id: str
    pool: str
    adapter_id: str | None
    capabilities: Mapping[str, float]
    target_size: int
    status: GroupStatus
    launch_token: str
    process: ProcessIdentity
    created_at: datetime
    contacted_at: datetime | None
    boot_deadline_at: datetime | None
    last_heartbeat: datetime | None
    lease_expires_at: datetime | None
    lease_seconds: float
    exit_code: int | None
    error: str | None
    log_path: str | None
    decision_id: int | None
    reference: str | None = None
    stopped_at: datetime | None = None


def is_gone(group: GroupRecord, now: datetime, gap: Gap | None, proven_dead: bool) -> bool:
    """Return whether a group's launch or supervisor counts as gone.

    One that has been in contact is judged by its process and lease; one that has not, by its process and its boot
    deadline.

    Args:
        group: one that has not ended.
        now: the time of the verdict.
        gap: the last gap between maintenance passes.
        proven_dead: whether its process is certainly gone.
    """
    if proven_dead:
        return True
    if group.lease_expires_at is not None:
        return lease_is_over(group.lease_expires_at, group.lease_seconds, now, gap)
    return group.boot_deadline_at is not None and group.boot_deadline_at < now


def supervisor_gone(process: ProcessIdentity) -> str:
    """Return what is written of a group whose supervisor has died without a word."""
    return f"the supervisor (pid {process.pid} on {process.host}) is gone; its workers finish and end"


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group that a supervisor registers by itself, started by hand.

    Attributes: those of `GroupRecord`.
    """

    group_id: str
    pool: str
    target_size: int
    launch_token: str
    process: ProcessIdentity
    lease_seconds: float
    capabilities: Mapping[str, float]
    log_path: str | None = None


@dataclass(frozen=True, slots=True)
class GroupOrders:
    """What a group's heartbeat brings back.

    Attributes:
        status: the stored status; `stopping` means drain all and end.
        target_size: how many workers to keep.
        allocation: how claims spread over the workers of its pool.
    """

    status: GroupStatus
    target_size: int
    allocation: Allocation = PULLED


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A row of `adapter_command`; its id is its idempotency token."""

    command_id: int
    adapter_id: str
    pool: str
    kind: CommandKind
    arguments: Mapping[str, Any]
    status: CommandStatus
    taken_by: ProcessIdentity | None
    scheduler_epoch: int
    created_at: datetime
    expires_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None
    reply: Mapping[str, Any] | None
    error_code: int | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """How a pool's workers are started: never raw arguments, only options by name.

    Attributes:
        python: absolute path of the interpreter.
        cwd: working directory, from which task modules are found.
        options: allow-listed worker options by long name without dashes; lists for repeatable ones.
    """

    python: str
    cwd: str
    options: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the value of `template_json`."""
        return {"python": self.python, "cwd": self.cwd, "options": dict(self.options)}

    @classmethod
    def from_json(cls, value: Any) -> Template | None:
        """Return the template that `template_json` describes, None when there is none."""
        if not isinstance(value, dict) or not {"python", "cwd", "options"} <= value.keys():
            return None
        options = value["options"]
        return cls(str(value["python"]), str(value["cwd"]), dict(options)) if isinstance(options, dict) else None


def adapter_backoff(consecutive_failures: int) -> float:
    """Return seconds for which an adapter with so many launch failures in a row is left alone (2 s to 10 min)."""
    if consecutive_failures <= 0:
        return 0.0
    return float(min(600.0, 2.0 ** min(consecutive_failures, 20)))
