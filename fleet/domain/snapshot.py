"""What one scaler pass sees: one consistent reading of the database, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.demand import PastAdvice, PoolOffer, Work
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
        settings: by name, what was said of the policy's own settings, of clamps and of how claims spread; what was
            never said has its default (`policies.in_force`).
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
        adapter_id: the adapter that started its group; None where no adapter did.
        idle_since: since when it executes nothing, as of its last heartbeat; None when it is busy, or unknown.
        cpu_percent: what it takes of one core, as of its last heartbeat; None where that is unknown.
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
    adapter_id: str | None = None
    idle_since: datetime | None = None
    cpu_percent: float | None = None


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
        slots: tasks that one worker executes at a time, by its template.
        work: open tasks by kind, of all queues but the paused ones, and kinds that were worked on lately.
        pools: all pools, this one included, by name: what each takes.
        pace_window: seconds back from now over which `Work.busy` and `Work.arrivals` are counted.
        advices: the ledger of this pool as far back as its clamps reach, oldest first.
        last_cycle_at: when the pass before this one decided.
        last_scale_up_at, last_scale_down_at: when a pass last started or took away workers.
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
    slots: int = 1
    work: tuple[Work, ...] = ()
    pools: tuple[PoolOffer, ...] = ()
    pace_window: float = 0.0
    advices: tuple[PastAdvice, ...] = ()
    last_cycle_at: datetime | None = None
    last_scale_up_at: datetime | None = None
    last_scale_down_at: datetime | None = None
