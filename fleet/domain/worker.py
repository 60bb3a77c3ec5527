"""Workers: what they register, what the registry says of them, and their life cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.execution import Fence
from fleet.domain.lifecycle import LifeCycle
from fleet.domain.liveness import ProcessIdentity


class WorkerStatus(StrEnum):
    """Where an incarnation is in its life."""

    ACTIVE = "active"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    LOST = "lost"


LIVE_STATUSES = (WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)

WORKER_LIFE: LifeCycle[WorkerStatus] = LifeCycle(
    "worker",
    {
        WorkerStatus.ACTIVE: frozenset({WorkerStatus.TERMINATING, WorkerStatus.TERMINATED, WorkerStatus.LOST}),
        WorkerStatus.TERMINATING: frozenset({WorkerStatus.TERMINATED, WorkerStatus.LOST}),
        # An ended incarnation never comes back; the same worker id may be registered by a new one.
        WorkerStatus.TERMINATED: frozenset(),
        WorkerStatus.LOST: frozenset(),
    },
)


@dataclass(frozen=True, slots=True)
class WorkerRegistration:
    """What one incarnation says of itself when it registers.

    Attributes:
        worker_id: the durable name.
        incarnation: a fresh uuid (hex) per process start; claims and stop flags belong to it.
        pool: the pool that it counts for.
        process: which process it is.
        heartbeat_seconds: how often it beats.
        lease_seconds: how long it is believed without a beat.
        slots: tasks that it executes at a time.
        group_id: its worker group, if it has one.
        adapter_id: the adapter that started the group, if one did.
        capabilities: what it offers, by name, with quantities.
        queues: queues that it serves; empty means all.
        handlers: names of the handlers that it has.
        version: the release that it runs.
        log_path: where its log goes, if to a file.
        resources: what its host has, as JSON values.
        metadata: anything JSON.
    """

    worker_id: str
    incarnation: str
    pool: str
    process: ProcessIdentity
    heartbeat_seconds: float
    lease_seconds: float
    slots: int = 1
    group_id: str | None = None
    adapter_id: str | None = None
    capabilities: Mapping[str, float] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    version: str | None = None
    log_path: str | None = None
    resources: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A row of `worker_registry`."""

    worker_id: str
    incarnation: str
    pool: str
    status: WorkerStatus
    process: ProcessIdentity
    started_at: datetime
    last_heartbeat: datetime
    heartbeat_seconds: float
    lease_seconds: float
    lease_expires_at: datetime
    slots: int
    current_task_id: int | None
    group_id: str | None
    adapter_id: str | None
    capabilities: Mapping[str, float]
    queues: tuple[str, ...]
    handlers: tuple[str, ...]
    tasks_done: int
    tasks_failed: int
    idle_since: datetime | None
    paused: bool
    terminating_at: datetime | None
    drain_deadline_at: datetime | None
    stopped_at: datetime | None
    stop_reason: str | None
    version: str | None
    log_path: str | None
    metadata: Mapping[str, Any]
    health: str | None = None
    health_checks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerFilter:
    """Which workers to list; every field given must hold.

    Attributes:
        status: any of these.
        host: on this host.
        pool: of this pool.
        group_id: of this group.
        capability: offering this capability.
        fresh_after: with a heartbeat at or after this time.
        stale_before: with a heartbeat before this time.
        measured: whether metrics and health are read as well: they are most of what a row holds.
    """

    status: tuple[WorkerStatus, ...] = ()
    host: str | None = None
    pool: str | None = None
    group_id: str | None = None
    capability: str | None = None
    fresh_after: datetime | None = None
    stale_before: datetime | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Beat:
    """One worker's heartbeat.

    Attributes:
        worker_id: whose.
        incarnation: of which life; a beat of an ended one touches nothing.
        held: every (task id, claim token) that it holds.
        current_task_id: what it executes now.
        idle: whether it holds nothing (`idle_since` is kept from the first idle beat on).
        tasks_done: tasks done in this life.
        tasks_failed: tasks failed in this life.
        metadata: metrics; None leaves what is stored.
    """

    worker_id: str
    incarnation: str
    held: tuple[tuple[int, int], ...] = ()
    current_task_id: int | None = None
    idle: bool = True
    tasks_done: int = 0
    tasks_failed: int = 0
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BeatReply:
    """What the registry answers to a heartbeat.

    Attributes:
        worker_id: to whom.
        incarnation: to which life.
        known: False when the beat touched no row: register anew as a new incarnation.
        status: the stored status, or None when unknown.
        paused: whether it must not claim.
        drain_deadline_at: when an ordered drain ends by force, if ever.
        lost_tasks: held tasks whose row no longer names this claim: stop executing them.
        released_tasks: rows that ran in this worker's name without being held (a claim whose reply was lost) and are
            back in the queue.
        cancelled_tasks: claims of tasks whose end is asked for.
    """

    worker_id: str
    incarnation: str
    known: bool
    status: WorkerStatus | None = None
    paused: bool = False
    drain_deadline_at: datetime | None = None
    lost_tasks: tuple[int, ...] = ()
    released_tasks: tuple[int, ...] = ()
    cancelled_tasks: tuple[Fence, ...] = ()
