"""From a snapshot to a plan: supply, clamps, and who goes first. Pure; the scaler applies what comes out.

Vocabulary: desired is what there should be; launching is ordered and not yet here; ready is here and believed;
draining was told to go, and is neither supply nor surplus. Nor is a worker in quarantine: another is started for it,
and it stays for when it is released; only where nobody is wanted at all it goes too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.group import BOOTING, LIVE_GROUPS, GroupRecord, GroupStatus
from fleet.domain.lanes import Lane, Offer
from fleet.domain.placement import StartGroup, placed
from fleet.domain.policies import policy
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot
from fleet.domain.worker import WorkerStatus


@dataclass(frozen=True, slots=True)
class ResizeGroup:
    """Lower a group's target size from `before` to `after` (0 lets its supervisor end)."""

    group_id: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class CancelGroup:
    """Withdraw a group that has not come up: its launch will find its token gone."""

    group_id: str
    size: int


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Flag a worker terminating; `only_if_idle` on condition that it still executes nothing."""

    worker_id: str
    incarnation: str
    group_id: str | None
    only_if_idle: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    Attributes:
        pool: the pool.
        policy: the policy that advised.
        settings_version: the settings that it is based on.
        supply: ready and launching before it.
        ready: workers that are here and believed.
        slots: tasks that those can execute at a time.
        launching: workers ordered and not yet here.
        draining: workers told to go.
        advised: what the policy said.
        desired: the advice after the clamps.
        waiting: pending tasks.
        running: running tasks.
        reasons: why, in words.
        starts, resizes, cancels, drains: what to do.
    """

    pool: str
    policy: str
    settings_version: int
    supply: int
    ready: int
    launching: int
    draining: int
    advised: int
    desired: int
    waiting: int
    running: int
    reasons: tuple[str, ...]
    slots: int = 0
    starts: tuple[StartGroup, ...] = ()
    resizes: tuple[ResizeGroup, ...] = ()
    cancels: tuple[CancelGroup, ...] = ()
    drains: tuple[DrainWorker, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.starts or self.resizes or self.cancels or self.drains)


@dataclass
class _Supply:
    """Who counts: groups that replace within their target size, and workers that stand for themselves.

    A group counts for its target size, or for its ready workers where those are more: its target was lowered while
    one that was to go had just begun a task, and it is still there to be chosen. Its workers in quarantine keep their
    places in the target and count for nothing.
    """

    groups: list[GroupRecord]
    members: dict[str, list[PoolWorker]]
    loose: list[PoolWorker]
    quarantined: list[PoolWorker]

    def size(self, group: GroupRecord) -> int:
        """Return how many workers the group counts for."""
        return max(group.target_size - self.held(group), len(self.members[group.group_id]), 0)

    def held(self, group: GroupRecord) -> int:
        """Return how many places of the group workers in quarantine take."""
        return sum(worker.group_id == group.group_id for worker in self.quarantined)

    @property
    def workers(self) -> list[PoolWorker]:
        """All that are here and believed."""
        return [*self.loose, *(worker for members in self.members.values() for worker in members)]

    @property
    def total(self) -> int:
        return sum(self.size(group) for group in self.groups) + len(self.loose)


def decide(snapshot: Snapshot) -> Plan:
    """Return what to do so that the pool has as many workers as its policy and clamps say."""
    supply = _supply(snapshot)
    settings = snapshot.settings
    advice = policy(settings.policy)(snapshot, supply.total)
    desired, clamps = _clamped(advice.workers, settings)
    reasons = [advice.reason, *clamps, *_quarantine_note(supply), *snapshot.notes]
    starts, notes = placed(
        desired - supply.total,
        settings.max_launch_per_cycle,
        snapshot.adapters,
        _unserved(supply.workers, snapshot.wanted),
        snapshot.now,
    )
    reasons += notes
    shrink = _shrink(supply, supply.total - desired, snapshot.wanted, everybody=desired == 0)
    ready = len(supply.workers)
    return Plan(
        pool=snapshot.pool,
        policy=settings.policy,
        settings_version=settings.version,
        supply=supply.total,
        ready=ready,
        launching=supply.total - ready,
        draining=_draining(snapshot),
        advised=advice.workers,
        desired=desired,
        waiting=snapshot.waiting,
        running=snapshot.running,
        reasons=tuple(reasons),
        slots=sum(worker.slots for worker in supply.workers),
        starts=starts,
        resizes=tuple(shrink.resizes),
        cancels=tuple(shrink.cancels),
        drains=tuple(shrink.drains),
    )


def _quarantine_note(supply: _Supply) -> list[str]:
    number = len(supply.quarantined)
    return [f"{number} in quarantine: neither supply nor surplus (see fleet quarantine list)"] if number else []


def _stopping(snapshot: Snapshot) -> set[str]:
    return {group.group_id for group in snapshot.groups if group.status is GroupStatus.STOPPING}


def _believed(snapshot: Snapshot) -> list[PoolWorker]:
    return [w for w in snapshot.workers if (w.worker_id, w.incarnation) not in snapshot.dead_workers]


def _draining(snapshot: Snapshot) -> int:
    # A worker may register in the moment in which its group is told to stop: it goes, whatever its own row says.
    stopping = _stopping(snapshot)
    return sum(1 for w in _believed(snapshot) if w.status is WorkerStatus.TERMINATING or w.group_id in stopping)


def _supply(snapshot: Snapshot) -> _Supply:
    groups = [g for g in snapshot.groups if g.status in LIVE_GROUPS and g.group_id not in snapshot.dead_groups]
    supply = _Supply(groups, {group.group_id: [] for group in groups}, [], [])
    stopping = _stopping(snapshot)
    for worker in _believed(snapshot):
        if worker.status is not WorkerStatus.ACTIVE or worker.group_id in stopping:
            continue
        if (worker.worker_id, worker.incarnation) in snapshot.quarantined:
            supply.quarantined.append(worker)
            continue
        # Loose: its supervisor is gone, or it is of another language and stands alone.
        supply.members.get(worker.group_id or "", supply.loose).append(worker)
    return supply


def _clamped(advised: int, settings: PoolSettings) -> tuple[int, list[str]]:
    desired, reasons = advised, []
    if desired < settings.min_workers:
        desired = settings.min_workers
        reasons.append(f"raised from {advised} to the minimum of {desired}")
    if settings.max_workers is not None and desired > settings.max_workers:
        reasons.append(f"lowered from {desired} to the maximum of {settings.max_workers}")
        desired = settings.max_workers
    return desired, reasons


def _unserved(workers: Sequence[PoolWorker], wanted: Sequence[Lane]) -> list[Mapping[str, float]]:
    """Return what the tasks require that none of these workers may take."""
    served = {place for places in _served(workers, wanted) for place in places}
    return [lane.requires for place, lane in enumerate(wanted) if place not in served]


@dataclass
class _Shrink:
    resizes: list[ResizeGroup] = field(default_factory=list)
    cancels: list[CancelGroup] = field(default_factory=list)
    drains: list[DrainWorker] = field(default_factory=list)


def _shrink(supply: _Supply, surplus: int, wanted: Sequence[Lane], *, everybody: bool) -> _Shrink:
    """Take `surplus` away: first launches that have not come up, then idle workers, then busy ones.

    With `everybody` those in quarantine go as well.
    """
    sizes = {group.group_id: supply.size(group) for group in supply.groups}
    surplus = _withdraw_launches(supply, sizes, surplus)
    drains = _drains(supply, sizes, surplus, wanted)
    shrink = _Shrink(drains=[*drains, *(map(_drain, supply.quarantined) if everybody else ())])
    for group in supply.groups:
        held = 0 if everybody else supply.held(group)
        before, after = group.target_size, min(group.target_size, sizes[group.group_id] + held)
        if after == before:
            continue
        if after == 0 and group.status in BOOTING:
            shrink.cancels.append(CancelGroup(group.group_id, before))
        else:
            shrink.resizes.append(ResizeGroup(group.group_id, before, after))
    return shrink


def _withdraw_launches(supply: _Supply, sizes: dict[str, int], surplus: int) -> int:
    """Lower `sizes` by workers that have not come up, newest groups first; return what surplus is left."""
    for group in sorted(supply.groups, key=_created, reverse=True):
        missing = sizes[group.group_id] - len(supply.members[group.group_id])
        take = min(max(0, surplus), missing)
        sizes[group.group_id] -= take
        surplus -= take
    return surplus


def _drains(supply: _Supply, sizes: dict[str, int], surplus: int, wanted: Sequence[Lane]) -> list[DrainWorker]:
    """Lower `sizes` by workers to drain: idle ones first, and of those the ones that came last (coldest caches).

    Whoever alone serves a lane in which tasks wait goes after all others.
    """
    if surplus <= 0:
        return []
    candidates = sorted(supply.workers, key=_started, reverse=True)
    candidates.sort(key=_is_busy)
    chosen = _spare_first(candidates, wanted)[:surplus]
    for worker in chosen:
        if worker.group_id in sizes:
            sizes[worker.group_id] -= 1
    return [_drain(worker) for worker in chosen]


def _drain(worker: PoolWorker) -> DrainWorker:
    return DrainWorker(worker.worker_id, worker.incarnation, worker.group_id, not _is_busy(worker))


def _spare_first(candidates: Sequence[PoolWorker], wanted: Sequence[Lane]) -> list[PoolWorker]:
    """Return the candidates in their order, but last those without whom a wanted lane would have nobody."""
    if not wanted:
        return list(candidates)
    serves = _served(candidates, wanted)
    left = Counter(place for places in serves for place in places)
    spare, needed = [], []
    for worker, places in zip(candidates, serves, strict=True):
        if any(left[place] == 1 for place in places):
            needed.append(worker)
            continue
        left.subtract(places)
        spare.append(worker)
    return spare + needed


def _served(workers: Sequence[PoolWorker], wanted: Sequence[Lane]) -> list[list[int]]:
    """Return for each worker which of the wanted lanes it serves; what many offer alike is compared once."""
    assigned = {lane.assigned_worker for lane in wanted} - {""}
    found: dict[object, list[int]] = {}
    served = []
    for worker in workers:
        offer = (worker.handlers, worker.queues, tuple(sorted(worker.capabilities.items())))
        key = (offer, worker.worker_id if worker.worker_id in assigned else None)
        if key not in found:
            found[key] = [place for place, lane in enumerate(wanted) if _offer(worker).serves(lane)]
        served.append(found[key])
    return served


def _offer(worker: PoolWorker) -> Offer:
    queues = tuple((queue, 0.0) for queue in worker.queues)
    return Offer(worker.worker_id, frozenset(worker.handlers), queues, worker.capabilities)


def _is_busy(worker: PoolWorker) -> bool:
    return worker.current_task_id is not None


def _started(worker: PoolWorker) -> datetime:
    return worker.started_at


def _created(group: GroupRecord) -> datetime:
    return group.created_at


__all__ = ["CancelGroup", "DrainWorker", "Plan", "ResizeGroup", "StartGroup", "decide"]
