"""The fleet at a glance: who is live, what waits, and whether something is wrong. Pure: a Sight in, a Status out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from fleet.domain.group import GroupStatus
from fleet.domain.health import HealthStatus
from fleet.domain.task import QueueCounts
from fleet.domain.worker import WorkerRecord
from fleet.monitoring.adapters import AdapterState
from fleet.monitoring.findings import notes, problems
from fleet.monitoring.sight import LOST, LastPass, Sight, can_take
from fleet.monitoring.workers import WorkerState


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool.

    Attributes:
        pool: its name.
        policy: its policy.
        desired: the number of workers that it asks for; None leaves it as it is.
        live: how many it has; those that drain, or are in quarantine, are not among them.
        slots: how many tasks those can execute at a time.
        launching: how many are ordered and not yet here.
        draining: how many finish what they execute, and go.
        decided_at: when a pass last looked at it.
    """

    pool: str
    policy: str
    desired: int | None
    live: int
    slots: int
    launching: int = 0
    draining: int = 0
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HandlerStatus:
    """Open tasks of one handler in one queue, and which live workers take them.

    Attributes:
        queue: the queue.
        task: the handler's name.
        requires: what a worker must offer.
        blocked: tasks that wait for others.
        scheduled: tasks that wait for their time.
        pending: tasks that wait for a worker.
        running: tasks that run.
        offered_by: ids of live workers that take them.
    """

    queue: str
    task: str
    requires: Mapping[str, float]
    blocked: int
    scheduled: int
    pending: int
    running: int
    offered_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The fleet at one moment.

    Attributes:
        at: the moment.
        healthy: whether there are no problems.
        problems: what is wrong, in words.
        notes: what is worth knowing and not wrong.
        workers: how many are in each state.
        health: how many of the live ones are how well.
        groups: how many are in each status, or lost: not there any more, and not yet written off.
        adapters: how many are in each state, but for those that a scaler acts for.
        tasks: how many are open, by status (all statuses, where finished ones were counted).
        oldest_waiting_seconds: how long the oldest pending task has waited.
        finished_10m: tasks done and failed in the last ten minutes: statistics by whole minutes, in which a few are
            missing for every worker that was killed.
        finished_24h: the same of the last day.
        paused: queues that nothing is claimed from now, with the time until then (None: until resumed).
        held_by_limits: tasks that wait for others of their key, or for its rate.
        paused_schedules: schedules whose ticks are left out now.
        pools: each pool.
        handlers: open tasks by handler and queue.
    """

    at: datetime
    healthy: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    workers: Mapping[str, int]
    health: Mapping[str, int]
    groups: Mapping[str, int]
    adapters: Mapping[str, int]
    tasks: Mapping[str, int]
    oldest_waiting_seconds: float | None
    finished_10m: Mapping[str, int]
    finished_24h: Mapping[str, int]
    paused: Mapping[str, datetime | None]
    held_by_limits: int
    paused_schedules: tuple[str, ...]
    pools: tuple[PoolStatus, ...]
    handlers: tuple[HandlerStatus, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object (times stay datetimes)."""
        return asdict(self)


def status_of(sight: Sight) -> Status:
    """Return the fleet at a glance."""
    handlers = tuple(_handler(counts, sight.claiming()) for counts in sight.counts)
    wrong = problems(sight)
    return Status(
        at=sight.now,
        healthy=not wrong,
        problems=wrong,
        notes=notes(sight),
        workers={**dict.fromkeys(map(str, WorkerState), 0), **Counter(str(sight.state(one)) for one in sight.workers)},
        health={
            **dict.fromkeys(map(str, HealthStatus), 0),
            **Counter(str(sight.health(worker).status) for worker in sight.live()),
        },
        groups={**dict.fromkeys([*map(str, GroupStatus), LOST], 0), **Counter(map(sight.group_state, sight.groups))},
        adapters=_adapters(sight),
        tasks=_tasks(sight),
        oldest_waiting_seconds=_oldest_waiting(sight),
        finished_10m=sight.finished.get(600, {}),
        finished_24h=sight.finished.get(86_400, {}),
        paused={pause.queue: pause.until for pause in sight.pauses},
        held_by_limits=sight.held,
        paused_schedules=sight.paused_schedules,
        pools=tuple(_pool(sight, name) for name in sorted(sight.pools, key=str)),
        handlers=handlers,
    )


def _adapters(sight: Sight) -> Mapping[str, int]:
    known = Counter(str(sight.adapter_state(one)) for one in sight.adapters if one.epoch)
    return {**dict.fromkeys(map(str, AdapterState), 0), **known}


def _oldest_waiting(sight: Sight) -> float | None:
    since = [counts.oldest_pending_at for counts in sight.counts if counts.oldest_pending_at is not None]
    return max(0.0, (sight.now - min(since)).total_seconds()) if since else None


def _handler(counts: QueueCounts, workers: tuple[WorkerRecord, ...]) -> HandlerStatus:
    return HandlerStatus(
        queue=counts.queue,
        task=counts.task,
        requires=counts.requires,
        blocked=counts.blocked,
        scheduled=counts.scheduled,
        pending=counts.pending,
        running=counts.running,
        offered_by=tuple(worker.worker_id for worker in workers if can_take(worker, counts)),
    )


def _tasks(sight: Sight) -> Mapping[str, int]:
    opened = {
        name: sum(getattr(counts, name) for counts in sight.counts)
        for name in ("blocked", "scheduled", "pending", "running")
    }
    return {**opened, **(sight.totals or {})}


def _pool(sight: Sight, name: str) -> PoolStatus:
    settings = sight.pools[name]
    apart = (WorkerState.DRAINING, WorkerState.QUARANTINED)
    live = [one for one in sight.live() if one.pool == name and sight.state(one) not in apart]
    return PoolStatus(
        name,
        settings.policy,
        sight.asked_for(name),
        len(live),
        sum(one.slots for one in live),
        sight.launching(name),
        sum(one.pool == name and sight.state(one) is WorkerState.DRAINING for one in sight.workers),
        sight.passes.get(name, LastPass()).at,
    )
