"""The part of a maintenance pass that assesses workers and does what helps: restarts, quarantines and their ends.

Level-triggered: a second pass on an unchanged world writes nothing. Only another verdict is written, an open order is
not given twice, an open quarantine is not begun twice. In a large fleet a pass assesses a part of the workers, the next
pass the next part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fleet.domain.health import assess, fails_often, has_changed, is_early, restart_helps
from fleet.domain.liveness import Gap, lease_is_over
from fleet.domain.orders import OrderKind
from fleet.domain.quarantine import Quarantine, Ward, needless, suspects, verdicts
from fleet.domain.worker import LIVE_STATUSES, WorkerFilter, WorkerRecord, WorkerStatus
from fleet.storage.interfaces import HealthChange, ProvenDead, Storage

RESTART_COOLDOWN = 600.0
"""Seconds between two restarts that the fleet orders of a worker of one name: where a new process is soon as large as
the old one, its tasks are at fault, and restarting it in a loop would only cost time."""

ASSESSED_AT_ONCE = 1_000
"""Workers that one pass assesses at most: less than a tenth of a second of work, and all of 10,000 within 50 s."""

RECORDED_AT_ONCE = 100
"""Verdicts of one transaction: where a host goes bad, those on all its workers change at once."""

NOBODY_ELSE = "the fleet: nobody else serves what waits"

Pace = Callable[[Callable[[], tuple[str, ...]]], tuple[str, ...]]
"""Runs a batch of writes, and then leaves the database to others for as long."""


def at_once(batch: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Run a batch of writes, and pause for nobody."""
    return batch()


def care(
    storage: Storage, gap: Gap | None, proven_dead: ProvenDead, turn: int = 0, pace: Pace = at_once
) -> tuple[str, ...]:
    """Assess live workers and act on what was found; return a line for each thing that an operator should know.

    Args:
        storage: the store.
        gap: the last gap between maintenance passes.
        proven_dead: whether a process is certainly gone: the rescue is about those.
        turn: rises with each pass: whose turn it is to be assessed where there are too many for one pass.
        pace: runs each batch of writes.
    """
    return _Care(storage, storage.now(), gap, proven_dead, pace).run(turn)


@dataclass(frozen=True, slots=True)
class _Care:
    storage: Storage
    now: datetime
    gap: Gap | None
    proven_dead: ProvenDead
    pace: Pace

    def run(self, turn: int) -> tuple[str, ...]:
        health = self.storage.health
        part = health.part(turn, ASSESSED_AT_ONCE)
        mine = self._believed(part.workers)
        found = [HealthChange(worker, assess(worker, self.now)) for worker in mine]
        return (
            *self.storage.orders.expire(),
            *health.release_overdue(),
            *self._record(found),
            *self._restarts(found),
            *self._quarantine(found, mine if part.is_all else None),
        )

    def _believed(self, workers: Iterable[WorkerRecord]) -> tuple[WorkerRecord, ...]:
        return tuple(
            worker
            for worker in workers
            if not lease_is_over(worker.lease_expires_at, worker.lease_seconds, self.now, self.gap)
            and not self.proven_dead(worker.process)
        )

    def _record(self, found: Sequence[HealthChange]) -> tuple[str, ...]:
        changed = [
            one
            for one in found
            if has_changed(one.worker, one.health) and not is_early(one.worker, one.health, self.now)
        ]
        lines: list[str] = []
        for first in range(0, len(changed), RECORDED_AT_ONCE):
            batch = changed[first : first + RECORDED_AT_ONCE]
            lines += self.pace(lambda batch=batch: self.storage.health.record(batch))  # type: ignore[misc]
        return tuple(lines)

    def _restarts(self, found: Sequence[HealthChange]) -> tuple[str, ...]:
        large = (one for one in found if restart_helps(one.health) and one.worker.status is WorkerStatus.ACTIVE)
        return tuple(line for one in large if (line := _restart(self.storage, one)))

    def _quarantine(self, found: Sequence[HealthChange], everybody: Sequence[WorkerRecord] | None) -> tuple[str, ...]:
        """Begin and end quarantines; `everybody` is None where the pass has looked at a part of the workers."""
        known = self.storage.health.quarantines(open_only=False)
        ill = [one.worker for one in found if fails_often(one.health.checks["error_rate"])]
        any_open = any(one.released_at is None for one in known)
        if not ill and not any_open:
            return ()
        workers = tuple(everybody) if everybody is not None else self._everybody(ill)
        ward = Ward(self.now, workers, known)
        # Whoever was just let go is not judged in the same pass.
        return (*(_end_needless(self.storage, ward) if any_open else ()), *_begin_needed(self.storage, ward))

    def _everybody(self, ill: Collection[WorkerRecord]) -> tuple[WorkerRecord, ...]:
        """Return all workers, with their metrics where they share a host with one that fails often: it may be that."""
        registry = self.storage.registry
        hosts = {worker.process.host for worker in ill} - {None}
        full = {worker.worker_id: worker for worker in ill}
        for host in sorted(map(str, hosts)):
            own = registry.list(WorkerFilter(status=LIVE_STATUSES, host=host))
            full |= {worker.worker_id: worker for worker in own}
        bare = registry.list(WorkerFilter(status=LIVE_STATUSES, measured=False))
        return self._believed(full.get(worker.worker_id, worker) for worker in bare)


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


def _end_needless(storage: Storage, ward: Ward) -> tuple[str, ...]:
    health = storage.health
    ended: list[Quarantine] = []
    for needed in needless(ward, health.wanted_lanes()):
        ended += health.release(str(needed.quarantine_id), NOBODY_ELSE)
    return tuple(f"quarantine of {one.scope} {one.subject} is over: released by {one.released_by}" for one in ended)


def _begin_needed(storage: Storage, ward: Ward) -> tuple[str, ...]:
    found = suspects(ward)
    if not found:
        return ()
    health = storage.health
    ward = replace(
        ward,
        lanes=storage.queue.lanes(),
        misfires=health.misfires([worker.worker_id for worker in found], ward.oldest_evidence),
    )
    begun = [quarantine for new in verdicts(ward) if (quarantine := health.quarantine(new)) is not None]
    return tuple(
        f"{one.scope} {one.subject} is in quarantine until {one.until:%H:%M:%S}Z: {one.reason}" for one in begun
    )
