"""Who goes when there are more workers than desired: launches first, then the idle, then the busy. Pure.

Within each of these, workers of adapters that the policy does not name go before those of the adapter that it names
last, and so on; then the idle go who have been idle longest, and else those who came last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

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
    adapter_id: str | None = None

    @property
    def is_busy(self) -> bool:
        return any(map(_is_busy, self.workers))

    @property
    def started_at(self) -> datetime:
        return max(worker.started_at for worker in self.workers)

    @property
    def idle_since(self) -> datetime:
        """Since when all of it is idle, as far as that is known; else later than all times that are."""
        return max((worker.idle_since or _UNKNOWN for worker in self.workers), default=_UNKNOWN)


_UNKNOWN = datetime.max.replace(tzinfo=UTC)


def shrunk(
    supply: Supply,
    surplus: int,
    wanted: Sequence[Lane],
    *,
    everybody: bool,
    adapters: Iterable[str] | None = None,
) -> Shrink:
    """Take `surplus` away: first launches that have not come up, then idle workers, then busy ones.

    Args:
        supply: who counts.
        surplus: how many more there are than desired.
        wanted: lanes in which tasks wait: who alone serves one goes after all others.
        everybody: nobody is desired: those in quarantine go as well.
        adapters: adapters in the order in which they are to keep their workers; None where that does not matter.

    Returns:
        What to do. A group that comes and goes whole goes only if all of it is surplus.
    """
    if surplus <= 0 and not everybody:
        return Shrink()
    sizes = {group.group_id: supply.size(group) for group in supply.groups}
    last = _Last(adapters)
    left = _withdraw_launches(supply, sizes, max(0, surplus), last)
    chosen = _chosen(supply, sizes, left, wanted, last)
    drains = [_drain(worker) for unit in chosen for worker in unit.workers]
    if everybody:
        drains += map(_drain, supply.quarantined)
    shrink = Shrink(drains=drains, left=left - sum(unit.size for unit in chosen))
    for group in supply.groups:
        _lower(shrink, group, sizes[group.group_id] + (0 if everybody else supply.held(group)))
    return shrink


def left_of(supply: Supply, number: int, wanted: Sequence[Lane]) -> Supply:
    """Return the supply without `number` workers, those that would go first."""
    shrink = shrunk(supply, number, wanted, everybody=False)
    gone = {(drain.worker_id, drain.incarnation) for drain in shrink.drains}
    sizes = {resize.group_id: resize.after for resize in shrink.resizes}
    cancelled = {cancel.group_id for cancel in shrink.cancels}

    def stay(workers: Iterable[PoolWorker]) -> list[PoolWorker]:
        return [worker for worker in workers if (worker.worker_id, worker.incarnation) not in gone]

    return Supply(
        [
            replace(group, target_size=sizes.get(group.group_id, group.target_size))
            for group in supply.groups
            if group.group_id not in cancelled
        ],
        {group_id: stay(members) for group_id, members in supply.members.items() if group_id not in cancelled},
        stay(supply.loose),
        supply.quarantined,
        supply.whole,
    )


def _lower(shrink: Shrink, group: GroupRecord, after: int) -> None:
    before = group.target_size
    if after >= before:
        return
    if after == 0 and group.status in BOOTING:
        shrink.cancels.append(CancelGroup(group.group_id, before))
    else:
        shrink.resizes.append(ResizeGroup(group.group_id, before, after))


class _Last:
    """How late workers of an adapter go."""

    def __init__(self, adapters: Iterable[str] | None) -> None:
        self._places = None if adapters is None else {name: -place for place, name in enumerate(adapters)}

    def of(self, adapter_id: str | None) -> float:
        """Return 0 for the first adapter, less for later ones, least for those that are not named."""
        if self._places is None:
            return 0
        return float("-inf") if adapter_id is None else self._places.get(adapter_id, float("-inf"))


def _withdraw_launches(supply: Supply, sizes: dict[str, int], surplus: int, last: _Last) -> int:
    """Lower `sizes` by workers that have not come up, newest groups first; return what surplus is left."""
    newest = sorted(supply.groups, key=_created, reverse=True)
    for group in sorted(newest, key=lambda group: last.of(group.adapter_id)):
        here = len(supply.members[group.group_id])
        missing = sizes[group.group_id] - here
        take = min(surplus, missing)
        if group.group_id in supply.whole and (here or take < missing):
            continue
        sizes[group.group_id] -= take
        surplus -= take
    return surplus


def _chosen(supply: Supply, sizes: dict[str, int], surplus: int, wanted: Sequence[Lane], last: _Last) -> list[_Unit]:
    """Lower `sizes` by those who go: idle ones first, and of those the ones that have been idle longest.

    Who has just ended a task may be between two of them. Of those of whom it is unknown the ones that came last go
    first: their caches are the coldest. Whoever alone serves a lane in which tasks wait goes after all others.
    """
    if surplus <= 0:
        return []
    candidates = sorted(_units(supply, sizes), key=_started, reverse=True)
    candidates.sort(key=lambda unit: (unit.is_busy, last.of(unit.adapter_id), unit.idle_since))
    chosen = []
    for unit in _spare_first(candidates, wanted):
        if unit.size <= surplus:
            chosen.append(unit)
            surplus -= unit.size
            if unit.group_id in sizes:
                sizes[unit.group_id] -= unit.size
    return chosen


def _units(supply: Supply, sizes: dict[str, int]) -> list[_Unit]:
    places = {group.group_id: group.adapter_id for group in supply.groups}
    whole = [
        _Unit(tuple(members), sizes[group_id], group_id, places[group_id])
        for group_id, members in supply.members.items()
        if group_id in supply.whole and members
    ]
    single = [
        _Unit((one,), 1, one.group_id, places.get(one.group_id or "", one.adapter_id))
        for one in supply.workers
        if one.group_id not in supply.whole
    ]
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


def _started(unit: _Unit) -> datetime:
    return unit.started_at


def _created(group: GroupRecord) -> datetime:
    return group.created_at
