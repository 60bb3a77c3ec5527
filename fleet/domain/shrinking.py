"""Who goes when there are more workers than desired: launches first, then the idle, then the busy. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.group import BOOTING, GroupRecord
from fleet.domain.lanes import Lane
from fleet.domain.snapshot import PoolWorker
from fleet.domain.supply import Supply, served_by


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


@dataclass
class Shrink:
    """What is taken away.

    Attributes:
        resizes, cancels, drains: what to do.
        left: surplus workers that stay, because their groups come and go whole.
    """

    resizes: list[ResizeGroup] = field(default_factory=list)
    cancels: list[CancelGroup] = field(default_factory=list)
    drains: list[DrainWorker] = field(default_factory=list)
    left: int = 0


@dataclass(frozen=True, slots=True)
class _Unit:
    """Workers that go together: one, or all of a whole group.

    Attributes:
        workers: those that are here.
        size: how many it counts for: of a whole group some may not be here yet.
        group_id: their group.
    """

    workers: tuple[PoolWorker, ...]
    size: int
    group_id: str | None

    @property
    def is_busy(self) -> bool:
        return any(map(_is_busy, self.workers))

    @property
    def started_at(self) -> datetime:
        return max(worker.started_at for worker in self.workers)


def shrunk(supply: Supply, surplus: int, wanted: Sequence[Lane], *, everybody: bool) -> Shrink:
    """Take `surplus` away: first launches that have not come up, then idle workers, then busy ones.

    Args:
        supply: who counts.
        surplus: how many more there are than desired.
        wanted: lanes in which tasks wait: who alone serves one goes after all others.
        everybody: nobody is desired: those in quarantine go as well.

    Returns:
        What to do. A group that comes and goes whole goes only if all of it is surplus.
    """
    sizes = {group.group_id: supply.size(group) for group in supply.groups}
    left = _withdraw_launches(supply, sizes, max(0, surplus))
    chosen = _chosen(supply, sizes, left, wanted)
    drains = [_drain(worker) for unit in chosen for worker in unit.workers]
    if everybody:
        drains += map(_drain, supply.quarantined)
    shrink = Shrink(drains=drains, left=left - sum(unit.size for unit in chosen))
    for group in supply.groups:
        _lower(shrink, group, sizes[group.group_id] + (0 if everybody else supply.held(group)))
    return shrink


def _lower(shrink: Shrink, group: GroupRecord, after: int) -> None:
    before = group.target_size
    if after >= before:
        return
    if after == 0 and group.status in BOOTING:
        shrink.cancels.append(CancelGroup(group.group_id, before))
    else:
        shrink.resizes.append(ResizeGroup(group.group_id, before, after))


def _withdraw_launches(supply: Supply, sizes: dict[str, int], surplus: int) -> int:
    """Lower `sizes` by workers that have not come up, newest groups first; return what surplus is left."""
    for group in sorted(supply.groups, key=_created, reverse=True):
        here = len(supply.members[group.group_id])
        missing = sizes[group.group_id] - here
        take = min(surplus, missing)
        if group.group_id in supply.whole and (here or take < missing):
            continue
        sizes[group.group_id] -= take
        surplus -= take
    return surplus


def _chosen(supply: Supply, sizes: dict[str, int], surplus: int, wanted: Sequence[Lane]) -> list[_Unit]:
    """Lower `sizes` by those who go: idle ones first, and of those the ones that came last (coldest caches).

    Whoever alone serves a lane in which tasks wait goes after all others.
    """
    if surplus <= 0:
        return []
    candidates = sorted(_units(supply, sizes), key=_started, reverse=True)
    candidates.sort(key=_unit_is_busy)
    chosen = []
    for unit in _spare_first(candidates, wanted):
        if unit.size <= surplus:
            chosen.append(unit)
            surplus -= unit.size
            if unit.group_id in sizes:
                sizes[unit.group_id] -= unit.size
    return chosen


def _units(supply: Supply, sizes: dict[str, int]) -> list[_Unit]:
    whole = [
        _Unit(tuple(members), sizes[group_id], group_id)
        for group_id, members in supply.members.items()
        if group_id in supply.whole and members
    ]
    single = [_Unit((one,), 1, one.group_id) for one in supply.workers if one.group_id not in supply.whole]
    return [*whole, *single]


def _drain(worker: PoolWorker) -> DrainWorker:
    return DrainWorker(worker.worker_id, worker.incarnation, worker.group_id, not _is_busy(worker))


def _spare_first(candidates: Sequence[_Unit], wanted: Sequence[Lane]) -> list[_Unit]:
    """Return the candidates in their order, but last those without whom a wanted lane would have nobody."""
    if not wanted:
        return list(candidates)
    everybody = [worker for unit in candidates for worker in unit.workers]
    by_worker = dict(zip(map(id, everybody), served_by(everybody, wanted), strict=True))
    serves = [Counter(place for worker in unit.workers for place in by_worker[id(worker)]) for unit in candidates]
    left = sum(serves, Counter())
    spare, needed = [], []
    for unit, places in zip(candidates, serves, strict=True):
        if any(left[place] == number for place, number in places.items()):
            needed.append(unit)
            continue
        left.subtract(places)
        spare.append(unit)
    return spare + needed


def _is_busy(worker: PoolWorker) -> bool:
    return worker.current_task_id is not None


def _unit_is_busy(unit: _Unit) -> bool:
    return unit.is_busy


def _started(unit: _Unit) -> datetime:
    return unit.started_at


def _created(group: GroupRecord) -> datetime:
    return group.created_at
