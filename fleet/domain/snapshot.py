"""What one scaler pass sees: one consistent reading of the database, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.group import GroupRecord
from fleet.domain.lanes import Lane
from fleet.domain.liveness import Gap
from fleet.domain.placement import AdapterState
from fleet.domain.worker import WorkerStatus


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A pool's settings in force: a row of `scheduler`.

    Attributes:
        policy: the policy's name.
        settings: the policy's own settings, by name.
        version: rises with every change.
        min_workers: never fewer.
        max_workers: never more; None is no limit.
        max_launch_per_cycle: never more launches in one pass.
    """

    policy: str
    settings: Mapping[str, Any]
    version: int
    min_workers: int = 0
    max_workers: int | None = None
    max_launch_per_cycle: int = 100


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A live worker of a pool, as far as a plan is about it.

    Attributes:
        worker_id: its id.
        incarnation: its life.
        group_id: its group, None where it stands for itself.
        status: active or terminating.
        started_at: when it registered.
        slots: tasks that it executes at a time.
        capabilities: what it offers.
        queues: queues that it serves; empty means all.
        handlers: names of the handlers that it has.
        current_task_id: what it executes, None when it is idle.
    """

    worker_id: str
    incarnation: str
    group_id: str | None
    status: WorkerStatus
    started_at: datetime
    slots: int
    capabilities: Mapping[str, float]
    queues: tuple[str, ...]
    handlers: tuple[str, ...]
    current_task_id: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pool at one moment.

    Attributes:
        now: the moment, by the database's clock.
        pool: the pool.
        settings: its settings in force.
        groups: its groups that have not ended.
        workers: its workers that are active or terminating.
        dead_workers: of those, (worker id, incarnation) proven dead or past their lease.
        dead_groups: ids of groups whose supervisor is proven dead or past its lease.
        waiting: pending tasks in all queues.
        running: running tasks in all queues.
        adapters: who may be asked to start workers.
        gap: the last gap between maintenance passes.
        notes: reasons that the plan repeats.
        quarantined: (worker id, incarnation) of those that claim nothing because tasks fail there.
        wanted: lanes in which tasks wait, or are due soon: who alone serves one is the last to go.
        offered: what the pool's workers offer by its template, wherever they are started.
    """

    now: datetime
    pool: str
    settings: PoolSettings
    groups: tuple[GroupRecord, ...]
    workers: tuple[PoolWorker, ...]
    dead_workers: frozenset[tuple[str, str]]
    dead_groups: frozenset[str]
    waiting: int
    running: int
    adapters: tuple[AdapterState, ...]
    gap: Gap | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    wanted: tuple[Lane, ...] = ()
    quarantined: frozenset[tuple[str, str]] = frozenset()
    offered: Mapping[str, float] = field(default_factory=dict)
