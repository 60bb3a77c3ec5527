"""From what a scaler pass reads to what its policy sees: the demand that a pool can serve and that counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.domain.demand import Offered, PoolOffer, Work
from fleet.domain.lanes import satisfies
from fleet.domain.policies.in_force import of_pool
from fleet.domain.policies.situation import Crew, Situation
from fleet.domain.snapshot import PoolWorker, Snapshot
from fleet.domain.supply import Supply, alike

UNTOLD = Work("", "", pending=1)
"""The demand of a pool that never had a worker, whatever its queues hold: one worker, which will tell what it takes."""


@dataclass
class _Counted:
    """Open tasks, by whether they count, and what the pool's workers take."""

    offers: list[Offered]
    demand: list[Work]
    unserved: list[Work]
    elsewhere: list[tuple[Work, str]]


def situation_of(snapshot: Snapshot, supply: Supply) -> Situation:
    """Return what the pool's policy sees.

    Demand is what can be served by workers that are here, or by new ones: what those would take is told by the
    handlers and queues of the present workers (else of the last ones), and by what the pool's template and the
    adapters offer. Work that several pools could serve counts for the one with most live slots, else for the first by
    name. A pool that never had a worker counts everything in its queues that no other pool is known to serve, together
    as demand for one worker.

    Args:
        snapshot: what was read.
        supply: who counts of it.

    Raises:
        UsageError: the pool's stored settings cannot be.
    """
    workers, taken = tuple(supply.workers), _taken(supply.workers)
    own = _own(snapshot, workers, taken)
    settings = snapshot.settings
    counted = _counted(snapshot, workers, own)
    return Situation(
        now=snapshot.now,
        pool=snapshot.pool,
        settings=of_pool(snapshot.pool, settings.policy, settings.settings),
        supply=supply.total,
        workers=workers,
        demand=tuple(counted.demand),
        is_untold=not own.offers,
        adapters=snapshot.adapters,
        sizes=supply.carried,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        pace_window=snapshot.pace_window,
        advices=snapshot.advices,
        last_cycle_at=snapshot.last_cycle_at,
        last_scale_up_at=snapshot.last_scale_up_at,
        last_scale_down_at=snapshot.last_scale_down_at,
        slots=sum(worker.slots for worker in workers) / len(workers) if workers else snapshot.slots,
        boot_seconds=_boot_seconds(supply),
        crews=_crews(snapshot, supply, taken, own.offers),
        offered=snapshot.offered,
        offers=tuple(counted.offers),
        unserved=tuple(counted.unserved),
        elsewhere=tuple(counted.elsewhere),
    )


def _boot_seconds(supply: Supply) -> float:
    """Return the median time from a group's order to its first worker; of a worker that was replaced it says more."""
    spans = sorted(
        (min(worker.started_at for worker in supply.members[group.group_id]) - group.created_at).total_seconds()
        for group in supply.groups
        if supply.members[group.group_id]
    )
    middle = len(spans) // 2
    return max(0.0, (spans[middle] + spans[~middle]) / 2) if spans else 0.0


# Who takes what


def _own(snapshot: Snapshot, workers: Sequence[PoolWorker], taken: Sequence[tuple[Offered, int]]) -> PoolOffer:
    """Return what this pool takes: of workers that are gone, or in quarantine, only while nobody else is here."""
    stored = next((each for each in snapshot.pools if each.pool == snapshot.pool), PoolOffer(snapshot.pool))
    present = tuple(offer for offer, _ in taken)
    slots = max(stored.slots, sum(worker.slots for worker in workers))
    return replace(stored, slots=slots, offers=present or stored.offers, offered=snapshot.offered)


def _taken(workers: Iterable[PoolWorker]) -> list[tuple[Offered, int]]:
    """Return what the workers take, each with how many of them take it."""
    kinds, first = alike(workers)
    offers = [Offered(frozenset(worker.handlers), worker.queues, worker.capabilities) for worker in first]
    return [(offers[kind], number) for kind, number in Counter(kinds).items()]


def takes(offer: Offered, work: Work) -> bool:
    """Return whether workers with `offer` may claim tasks of this kind, whoever they are."""
    return (
        work.task in offer.handlers
        and (not offer.queues or work.queue in offer.queues)
        and satisfies(offer.capabilities, work.requires)
    )


def _reach(pool: PoolOffer, places: Sequence[Mapping[str, float]]) -> list[Offered]:
    """Return what workers of the pool take, and what new ones would, wherever they are started."""
    started = [{**place, **pool.offered} for place in (places or [{}])]
    offers = [*pool.offers, *(replace(one, capabilities=each) for one in pool.offers for each in started)]
    return [one for at, one in enumerate(offers) if one not in offers[:at]]


def _crews(
    snapshot: Snapshot, supply: Supply, present: Sequence[tuple[Offered, int]], offers: Sequence[Offered]
) -> tuple[Crew, ...]:
    """Return the supply by what it takes; of launches the handlers are those that the pool's workers have."""
    crews = [Crew(taken, here=number) for taken, number in present]
    base = {adapter.adapter_id: adapter.limits.base_capabilities or {} for adapter in snapshot.adapters}
    for group in supply.groups:
        coming = supply.size(group) - len(supply.members[group.group_id])
        if coming <= 0:
            continue
        capabilities = {**base.get(group.adapter_id or "", {}), **snapshot.offered, **group.capabilities}
        takes = replace(offers[0], capabilities=capabilities) if offers else None
        same = next((at for at, crew in enumerate(crews) if crew.takes == takes and not crew.here), None)
        if same is None:
            crews.append(Crew(takes, coming=coming))
        else:
            crews[same] = replace(crews[same], coming=crews[same].coming + coming)
    return tuple(crews)


# What counts


def _counted(snapshot: Snapshot, workers: Sequence[PoolWorker], own: PoolOffer) -> _Counted:
    pools = sorted((own, *(each for each in snapshot.pools if each.pool != own.pool)), key=_precedence)
    places = [adapter.limits.base_capabilities or {} for adapter in snapshot.adapters]
    reach = {pool.pool: _reach(pool, places) for pool in pools}
    assigned = {work.assigned_worker for work in snapshot.work} - {""}
    by_name = {worker.worker_id: worker for worker in workers if worker.worker_id in assigned} if assigned else {}
    counted = _Counted(reach[own.pool], [], [], [])
    left = []
    for work in snapshot.work:
        if work.assigned_worker:
            _count_assigned(counted, by_name.get(work.assigned_worker), work)
            continue
        able = [pool.pool for pool in pools if any(takes(offer, work) for offer in reach[pool.pool])]
        if not able:
            left.append(work)
        elif able[0] == own.pool:
            counted.demand.append(work)
        elif own.pool in able:
            counted.elsewhere.append((work, able[0]))
    ours = [work for work in left if work.pending and _in_queues(own, work)]
    if own.offers:
        counted.unserved += ours
    elif ours:
        counted.demand.append(UNTOLD)
    return counted


def _precedence(pool: PoolOffer) -> tuple[int, str]:
    return -pool.slots, pool.pool


def _count_assigned(counted: _Counted, worker: PoolWorker | None, work: Work) -> None:
    """Count what only one worker may claim: as much as it can execute at a time, however much of it waits."""
    if worker is not None and takes(Offered(frozenset(worker.handlers), worker.queues, worker.capabilities), work):
        room = max(0, worker.slots - work.running)
        counted.demand.append(replace(work, pending=min(work.pending, room), arrivals=None))


def _in_queues(pool: PoolOffer, work: Work) -> bool:
    """Return whether a task is in the pool's queues: those that its workers serve, else those of its template."""
    queues = [offer.queues for offer in pool.offers] or [pool.queues]
    return any(not names or work.queue in names for names in queues)
