"""What is wrong with a fleet, and what is worth knowing: sentences from a Sight. Pure.

Liveness and backlog are separate: a task that nobody can run makes no worker unhealthy. What makes a fleet unhealthy:
tasks wait and no worker is live (unless every pool was told to have none), a dead worker's task waits for rescue, a
group is gone and nobody has written it off, a pool that asks for workers has none because its launches fail, an adapter
leaves orders undone, or a live worker is unhealthy or in quarantine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.task import SHELL_TASK, QueueCounts
from fleet.domain.worker import WorkerRecord
from fleet.monitoring.ailments import degraded, unwell
from fleet.monitoring.control import idle_adapters, unattended
from fleet.monitoring.outage import nobody_is_needed, nobody_works, refused, tasks_wait, unseen, why_nothing_runs
from fleet.monitoring.sight import Sight, can_take
from fleet.monitoring.workers import WorkerState
from fleet.storage.interfaces import Pause

LARGE_LOG = 256 << 20
LARGE_FREE = 256 << 20
LONG_OPEN = 300.0
"""Seconds from which on an open transaction is told of: claims slow down with what was claimed since it began."""


def problems(sight: Sight) -> tuple[str, ...]:
    """Return what makes the fleet unhealthy, in words; of a sealed database that alone."""
    if sight.seal is not None:
        return (sight.seal,)
    return (
        *nobody_works(sight),
        *_unrescued(sight),
        *_lost_groups(sight),
        *_launchless(sight),
        *refused(sight),
        *unattended(sight),
        *unwell(sight),
    )


def notes(sight: Sight) -> tuple[str, ...]:
    """Return what is worth knowing and not wrong."""
    return (
        *nobody_is_needed(sight),
        *unseen(sight),
        *_unoffered(sight),
        *_late(sight),
        *degraded(sight),
        *_dead_and_idle(sight),
        *_failed_launches(sight),
        *idle_adapters(sight),
        *_paused(sight),
        *_held(sight),
        *_schedules(sight),
        *_large(sight),
        *_long_open(sight),
    )


def _paused(sight: Sight) -> tuple[str, ...]:
    waiting: Counter[str] = Counter()
    for counts in sight.counts:
        waiting[counts.queue] += counts.pending
    return tuple(
        f"queue {pause.queue} is paused{_until(pause)}"
        + (f": {tasks_wait(waiting[pause.queue])}" if waiting[pause.queue] else "")
        for pause in sight.pauses
    )


def _held(sight: Sight) -> tuple[str, ...]:
    if not sight.held:
        return ()
    tasks = "1 task is" if sight.held == 1 else f"{sight.held} tasks are"
    return (f"{tasks} held back by limits (fleet limit list)",)


def _schedules(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"schedule {name} is paused: by somebody, or because it could not be ticked (fleet schedule show {name})"
        for name in sight.paused_schedules
    )


def _until(pause: Pause) -> str:
    return "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M:%S}Z"


def _large(sight: Sight) -> tuple[str, ...]:
    log, free = sight.sizes.get("log", 0), sight.sizes.get("free", 0)
    return (
        *(
            [f"the write-ahead log has {log >> 20} MiB: somebody reads an old snapshot all the time"]
            if log > LARGE_LOG
            else []
        ),
        *(
            [f"{free >> 20} MiB of the file are free pages: fleet db vacuum gives them back"]
            if free > LARGE_FREE
            else []
        ),
    )


def _long_open(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"a transaction of server process {one.pid} ({one.application or 'unnamed'}, {one.state}) has been open for "
        f"{one.seconds / 60:.0f} min: dead rows are kept for it, and claims slow down; end it "
        f"(SELECT pg_terminate_backend({one.pid}))"
        for one in sight.transactions
        if one.seconds >= LONG_OPEN
    )


def _unrescued(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"{_is_dead(sight, worker)} and task {worker.current_task_id} is not yet given back: "
        "any worker or fleet-scaler pass does that"
        for worker in _dead(sight)
        if worker.current_task_id is not None
    )


def _lost_groups(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"group {group.group_id} of pool {group.pool} is lost ({_why_lost(sight, group)}) and not yet written off: "
        "any worker or fleet-scaler pass does that"
        for group in sight.groups
        if sight.is_lost(group)
    )


def _why_lost(sight: Sight, group: GroupRecord) -> str:
    if group.contacted_at is None:
        return "its launch has come to nothing"
    if group.group_id in sight.dead_groups:
        return f"its supervisor, pid {group.process.pid} on {group.process.host}, is gone"
    return "its lease is over"


def _dead_and_idle(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"{_is_dead(sight, worker)} and held nothing" for worker in _dead(sight) if worker.current_task_id is None
    )


def _dead(sight: Sight) -> tuple[WorkerRecord, ...]:
    return tuple(worker for worker in sight.workers if sight.state(worker) is WorkerState.DEAD)


def _is_dead(sight: Sight, worker: WorkerRecord) -> str:
    return f"worker {worker.worker_id} is dead (last beat {_age(sight, worker):.0f} s ago)"


def _age(sight: Sight, worker: WorkerRecord) -> float:
    return max(0.0, (sight.now - worker.last_heartbeat).total_seconds())


def _late(sight: Sight) -> tuple[str, ...]:
    return tuple(
        f"worker {worker.worker_id} is late: its last beat was {_age(sight, worker):.0f} s ago"
        + (", and its process lives" if sight.overdue(worker) else "")
        for worker in sight.workers
        if sight.state(worker) is WorkerState.LATE
    )


def _unoffered(sight: Sight) -> tuple[str, ...]:
    workers = sight.claiming()
    if not workers:
        return ()
    return tuple(
        f"{counts.task} in queue {counts.queue}: {tasks_wait(counts.pending)} and no worker {_offers(counts, workers)}"
        for counts in sight.counts
        if counts.pending
        and not sight.is_paused(counts.queue)
        and not any(can_take(worker, counts) for worker in workers)
    )


def _offers(counts: QueueCounts, workers: Iterable[WorkerRecord]) -> str:
    """Return what no worker does or has been told."""
    shell_allowed = any(SHELL_TASK in worker.handlers for worker in workers)
    return "offers it" if counts.task != SHELL_TASK or shell_allowed else "was started with --allow-shell"


def _launchless(sight: Sight) -> tuple[str, ...]:
    """Say which pools ask for workers and have none because their launches fail."""
    return tuple(
        f"pool {pool} asks for {sight.asked_for(pool)} workers and has none: {_why_failed(group)}"
        for pool, group in _failed(sight)
        if sight.has_nobody(pool)
    )


def _failed_launches(sight: Sight) -> tuple[str, ...]:
    """Say which other pools' newest group failed."""
    return tuple(
        f"the last {'launch' if group.contacted_at is None else 'group'} of pool {pool} failed: {_why_failed(group)}"
        for pool, group in _failed(sight)
        if not sight.has_nobody(pool)
    )


def _failed(sight: Sight) -> list[tuple[str, GroupRecord]]:
    """Return the pools whose newest group never came up, or was given up and has left nobody, with that group."""
    newest: dict[str, GroupRecord] = {}
    for group in sorted(sight.groups, key=lambda group: group.created_at):
        newest[group.pool] = group
    return [
        (pool, group)
        for pool, group in sorted(newest.items(), key=lambda item: str(item[0]))
        if group.status is GroupStatus.FAILED and (group.contacted_at is None or sight.is_empty(pool))
    ]


def _why_failed(group: GroupRecord) -> str:
    lines = (group.error or "no reason is known").splitlines()
    return f"{lines[0] if lines else 'no reason is known'} (fleet groups)"


__all__ = ["LARGE_FREE", "LARGE_LOG", "notes", "problems", "why_nothing_runs"]
