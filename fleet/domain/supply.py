"""Who counts as supply of a pool: groups, loose workers, those in quarantine. Pure, from a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from fleet.domain.group import LIVE_GROUPS, GroupRecord, GroupStatus
from fleet.domain.lanes import Lane, Offer
from fleet.domain.snapshot import PoolWorker, Snapshot
from fleet.domain.worker import WorkerStatus


@dataclass
class Supply:
    """Who counts: groups that replace within their target size, and workers that stand for themselves.

    It is filled by `supply_of` and changed no more: what is counted of it is counted once.

    A group counts for its target size, or for its ready workers where those are more: its target was lowered while
    one that was to go had just begun a task, and it is still there to be chosen. Its workers in quarantine keep their
    places in the target and count for nothing.

    Attributes:
        groups: those that live.
        members: their workers that are here and believed, by group.
        loose: such workers whose supervisor is gone, or that are of another language and stand alone.
        quarantined: workers that claim nothing.
        whole: groups that come and go whole: their adapters cannot make one smaller.
    """

    groups: list[GroupRecord]
    members: dict[str, list[PoolWorker]]
    loose: list[PoolWorker]
    quarantined: list[PoolWorker]
    whole: frozenset[str] = frozenset()

    def size(self, group: GroupRecord) -> int:
        """Return how many workers the group counts for."""
        return max(group.target_size - self.held(group), len(self.members[group.group_id]), 0)

    def held(self, group: GroupRecord) -> int:
        """Return how many places of the group workers in quarantine take."""
        return self._held[group.group_id]

    @cached_property
    def _held(self) -> Counter[str | None]:
        return Counter(worker.group_id for worker in self.quarantined)

    @cached_property
    def workers(self) -> Sequence[PoolWorker]:
        """All that are here and believed."""
        return (*self.loose, *chain.from_iterable(self.members.values()))

    @cached_property
    def total(self) -> int:
        """How many workers there are, or will be."""
        return sum(self.size(group) for group in self.groups) + len(self.loose)

    @cached_property
    def carried(self) -> Mapping[str, int]:
        """How many of them each adapter carries, by its id."""
        sizes: Counter[str] = Counter()
        for group in self.groups:
            if group.adapter_id is not None:
                sizes[group.adapter_id] += self.size(group)
        sizes.update(worker.adapter_id for worker in self.loose if worker.adapter_id is not None)
        return dict(sizes)


def _stopping(snapshot: Snapshot) -> set[str]:
    return {group.group_id for group in snapshot.groups if group.status is GroupStatus.STOPPING}


def _believed(snapshot: Snapshot) -> Sequence[PoolWorker]:
    if not snapshot.dead_workers:
        return snapshot.workers
    return [w for w in snapshot.workers if (w.worker_id, w.incarnation) not in snapshot.dead_workers]


def draining(snapshot: Snapshot) -> int:
    """Return how many workers were told to go."""
    # A worker may register in the moment in which its group is told to stop: it goes, whatever its own row says.
    stopping = _stopping(snapshot)
    return sum(1 for w in _believed(snapshot) if w.status is WorkerStatus.TERMINATING or w.group_id in stopping)


def supply_of(snapshot: Snapshot) -> Supply:
    """Return who counts."""
    groups = [g for g in snapshot.groups if g.status in LIVE_GROUPS and g.group_id not in snapshot.dead_groups]
    supply = Supply(groups, {group.group_id: [] for group in groups}, [], [], _whole(snapshot))
    stopping, quarantined = _stopping(snapshot), snapshot.quarantined
    for worker in _believed(snapshot):
        if worker.status is not WorkerStatus.ACTIVE or worker.group_id in stopping:
            continue
        if quarantined and (worker.worker_id, worker.incarnation) in quarantined:
            supply.quarantined.append(worker)
            continue
        supply.members.get(worker.group_id or "", supply.loose).append(worker)
    return supply


def _whole(snapshot: Snapshot) -> frozenset[str]:
    stiff = {adapter.adapter_id for adapter in snapshot.adapters if not adapter.resizes}
    return frozenset(group.group_id for group in snapshot.groups if group.adapter_id in stiff)


def unserved(workers: Sequence[PoolWorker], wanted: Sequence[Lane]) -> list[Mapping[str, float]]:
    """Return what the tasks require that none of these workers may take."""
    distinct = {id(places): places for places in served_by(workers, wanted)} if wanted else {}
    served = set(chain.from_iterable(distinct.values()))
    return [lane.requires for place, lane in enumerate(wanted) if place not in served]


def alike(workers: Iterable[PoolWorker]) -> tuple[list[int], list[PoolWorker]]:
    """Return the number of each worker's kind, and the first worker of each kind; of one kind are who offer the same.

    Workers often share the very objects that say what they offer, and are compared no further then.
    """
    kinds, first = list[int](), list[PoolWorker]()
    known: dict[object, int] = {}
    handlers: object = None
    queues: object = None
    capabilities: object = None
    kind = 0
    for worker in workers:
        is_same = worker.capabilities is capabilities and worker.handlers is handlers and worker.queues is queues
        if not is_same:
            handlers, queues, capabilities = worker.handlers, worker.queues, worker.capabilities
            kind = known.setdefault((handlers, queues, tuple(sorted(worker.capabilities.items()))), len(first))
            if kind == len(first):
                first.append(worker)
        kinds.append(kind)
    return kinds, first


def served_by(workers: Sequence[PoolWorker], wanted: Sequence[Lane]) -> list[list[int]]:
    """Return for each worker which of the wanted lanes it serves; what many offer alike is compared once."""
    assigned = {lane.assigned_worker for lane in wanted} - {""}
    kinds, first = alike(workers)
    anybody = [_served(_offer(worker, ""), wanted) for worker in first]
    if not assigned:
        return [anybody[kind] for kind in kinds]
    return [
        _served(_offer(worker, worker.worker_id), wanted) if worker.worker_id in assigned else anybody[kind]
        for worker, kind in zip(workers, kinds, strict=True)
    ]


def _served(offer: Offer, wanted: Sequence[Lane]) -> list[int]:
    return [place for place, lane in enumerate(wanted) if offer.serves(lane)]


def _offer(worker: PoolWorker, name: str) -> Offer:
    queues = tuple((queue, 0.0) for queue in worker.queues)
    return Offer(name, frozenset(worker.handlers), queues, worker.capabilities)
