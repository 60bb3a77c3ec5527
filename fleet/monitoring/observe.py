"""Reading what a status is made from; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.domain.group import ENDED_GROUPS, GroupRecord
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.worker import LIVE_STATUSES, WorkerFilter, WorkerRecord
from fleet.monitoring.sight import LastPass, Sight
from fleet.storage.interfaces import ProvenDead, Storage

LIVE_ROWS = WorkerFilter(status=LIVE_STATUSES)
ALL_ROWS = WorkerFilter()
FINISHED_OVER = (600, 86_400)
"""Seconds over which finished tasks are told: ten minutes, a day."""


def never(_process: ProcessIdentity) -> bool:
    """Return False: nothing is known of any process."""
    return False


def observe_workers(
    storage: Storage, proven_dead: ProvenDead, *, moving: ProvenDead = never, ended: bool = False
) -> Sight:
    """Read workers and pools, and no task.

    Args:
        storage: the database.
        proven_dead: says whether a process is certainly gone.
        moving: says whether a process is certainly there, and not stopped.
        ended: read ended workers too.
    """
    workers = storage.registry.list(ALL_ROWS if ended else LIVE_ROWS)
    pools = storage.control.pools()
    return Sight(
        now=storage.now(),
        workers=_busy_now(storage, workers),
        dead=frozenset(
            (worker.worker_id, worker.incarnation)
            for worker in workers
            if worker.status in LIVE_STATUSES and proven_dead(worker.process)
        ),
        moving=frozenset(
            (worker.worker_id, worker.incarnation)
            for worker in workers
            if worker.status in LIVE_STATUSES and moving(worker.process)
        ),
        gap=storage.control.last_gap(),
        pools={pool.pool: pool.settings for pool in pools},
        passes={pool.pool: LastPass(pool.desired, pool.last_cycle_at) for pool in pools},
        quarantines=storage.health.quarantines(),
    )


def observe(
    storage: Storage, proven_dead: ProvenDead, *, moving: ProvenDead = never, everything: bool = False
) -> Sight:
    """Read the fleet.

    Args:
        storage: the database.
        proven_dead: says whether a process is certainly gone.
        moving: says whether a process is certainly there, and not stopped.
        everything: count finished tasks and read ended workers too.
    """
    adapters = storage.adapters.list()
    groups = storage.control.groups()
    return replace(
        observe_workers(storage, proven_dead, moving=moving, ended=everything),
        groups=groups,
        dead_groups=dead_groups(groups, proven_dead),
        adapters=adapters,
        dead_adapters=frozenset(one.adapter_id for one in adapters if proven_dead(one.process)),
        commands=storage.control.open_commands(),
        counts=storage.queue.counts(),
        totals=storage.queue.totals() if everything else None,
        pauses=storage.rules.pauses(),
        finished={seconds: storage.control.finished_since(seconds) for seconds in FINISHED_OVER},
        sizes=storage.sizes(),
        seal=storage.seal(),
        transactions=storage.open_transactions(),
        held=_held(storage),
        paused_schedules=tuple(one.schedule.name for one in storage.schedules.list() if one.paused),
    )


def observe_groups(storage: Storage, proven_dead: ProvenDead) -> Sight:
    """Read worker groups alone; `proven_dead` says whether a process is certainly gone."""
    groups = storage.control.groups()
    return Sight(
        storage.now(), groups=groups, dead_groups=dead_groups(groups, proven_dead), gap=storage.control.last_gap()
    )


def dead_groups(groups: Iterable[GroupRecord], proven_dead: ProvenDead) -> frozenset[str]:
    """Return the ids of the groups, not ended, whose process is certainly gone."""
    return frozenset(
        group.group_id
        for group in groups
        if group.status not in ENDED_GROUPS and group.process.pid is not None and proven_dead(group.process)
    )


def _held(storage: Storage) -> int:
    # Most fleets have no limits: nothing is counted for them.
    return sum(use.blocked for use in storage.rules.limit_use()) if storage.rules.limits() else 0


def _busy_now(storage: Storage, workers: tuple[WorkerRecord, ...]) -> tuple[WorkerRecord, ...]:
    """Return the workers with the task that each runs now: the registry knows it as of the last beat."""
    running = {row["worker_id"]: row["current_task_id"] for row in storage.control.view("fleet_workers")}
    return tuple(replace(worker, current_task_id=running.get(worker.worker_id)) for worker in workers)
