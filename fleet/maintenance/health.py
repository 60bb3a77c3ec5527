"""Assesses live workers, and does what helps: orders restarts, begins and ends quarantines. Level-triggered.

A second pass on an unchanged world writes nothing: only another verdict is written, an open order is not given twice,
an open quarantine is not begun twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fleet.domain.health import assess, has_changed, is_early, restart_helps
from fleet.domain.liveness import Gap, lease_is_over
from fleet.domain.orders import OrderKind
from fleet.domain.quarantine import Ward, needless, suspects, verdicts
from fleet.domain.worker import LIVE_STATUSES, WorkerFilter, WorkerRecord, WorkerStatus
from fleet.storage.interfaces import HealthChange, ProvenDead, Storage

RESTART_COOLDOWN = 600.0
"""Seconds between two restarts that the fleet orders of a worker of one name: where a new process is soon as large as
the old one, its tasks are at fault, and restarting it in a loop would only cost time."""

NOBODY_ELSE = "the fleet: nobody else serves what waits"


def care(storage: Storage, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
    """Assess live workers and act on what was found; return a line for each thing that an operator should know.

    Args:
        storage: the store.
        gap: the last gap between maintenance passes.
        proven_dead: whether a process is certainly gone: the rescue is about those.
    """
    now = storage.now()
    live = _believed(storage.registry.list(WorkerFilter(status=LIVE_STATUSES)), now, gap, proven_dead)
    return (
        *storage.orders.expire(),
        *storage.health.release_overdue(),
        *_assess(storage, live, now),
        *_quarantine(storage, live, now),
    )


def _believed(
    workers: Sequence[WorkerRecord], now: datetime, gap: Gap | None, proven_dead: ProvenDead
) -> tuple[WorkerRecord, ...]:
    return tuple(
        worker
        for worker in workers
        if not lease_is_over(worker.lease_expires_at, worker.lease_seconds, now, gap)
        and not proven_dead(worker.process)
    )


def _assess(storage: Storage, live: Sequence[WorkerRecord], now: datetime) -> tuple[str, ...]:
    found = [HealthChange(worker, assess(worker, now)) for worker in live]
    changed = [
        one for one in found if has_changed(one.worker, one.health) and not is_early(one.worker, one.health, now)
    ]
    lines = storage.health.record(changed)
    large = [one for one in found if restart_helps(one.health) and one.worker.status is WorkerStatus.ACTIVE]
    return (*lines, *(line for one in large if (line := _restart(storage, one))))


def _restart(storage: Storage, found: HealthChange) -> str:
    """Order a restart, unless one is open or the last is recent; return the line of it."""
    worker, memory = found.worker, found.health.checks["memory"]
    given = storage.orders.give(
        worker.worker_id,
        worker.incarnation,
        OrderKind.RESTART,
        reason=f"memory: {memory.text}",
        cooldown=RESTART_COOLDOWN,
    )
    return f"worker {worker.worker_id} is to restart (command {given.command_id}): {memory.text}" if given else ""


def _quarantine(storage: Storage, live: tuple[WorkerRecord, ...], now: datetime) -> tuple[str, ...]:
    health = storage.health
    known = health.quarantines(open_only=False)
    ward = Ward(now, live, known)
    lines: list[str] = []
    if any(one.released_at is None for one in known):
        for needed in needless(ward, health.wanted_lanes()):
            ended = health.release(str(needed.quarantine_id), NOBODY_ELSE)
            lines += [
                f"quarantine of {one.scope} {one.subject} is over: released by {one.released_by}" for one in ended
            ]
        # Whoever was just let go is not judged in the same pass.
    found = suspects(ward)
    if found:
        ward = replace(
            ward,
            lanes=storage.queue.lanes(),
            misfires=health.misfires([worker.worker_id for worker in found], ward.oldest_evidence),
        )
        begun = [quarantine for new in verdicts(ward) if (quarantine := health.quarantine(new)) is not None]
        lines += [
            f"{one.scope} {one.subject} is in quarantine until {one.until:%H:%M:%S}Z: {one.reason}" for one in begun
        ]
    return tuple(lines)
