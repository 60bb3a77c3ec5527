"""From a snapshot to a plan: supply, clamps, and who goes first. Pure; the scaler applies what comes out.

Vocabulary: desired is what there should be; launching is ordered and not yet here; ready is here and believed;
draining was told to go, and is neither supply nor surplus. Nor is a worker in quarantine: another is started for it,
and it stays for when it is released; only where nobody is wanted at all it goes too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.domain.bounds import Bounds, bounds_at
from fleet.domain.clamps import Past, clamped
from fleet.domain.consulting import consulted
from fleet.domain.placement import StartGroup, Wish, placed
from fleet.domain.policies import Advice, policy
from fleet.domain.policies.in_force import of_pool
from fleet.domain.policies.left_out import notes_of
from fleet.domain.policies.viewing import situation_of
from fleet.domain.reasons import Reason
from fleet.domain.shrinking import CancelGroup, DrainWorker, ResizeGroup, left_of, shrunk
from fleet.domain.snapshot import Snapshot
from fleet.domain.spare import without_spare
from fleet.domain.supply import Supply, draining, supply_of, unserved
from fleet.errors import UsageError


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
        reasons: why, as codes and words.
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
    reasons: tuple[Reason, ...]
    slots: int = 0
    starts: tuple[StartGroup, ...] = ()
    resizes: tuple[ResizeGroup, ...] = ()
    cancels: tuple[CancelGroup, ...] = ()
    drains: tuple[DrainWorker, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.starts or self.resizes or self.cancels or self.drains)


def decide(snapshot: Snapshot) -> Plan:
    """Return what to do so that the pool has as many workers as its policy and clamps say.

    Raises:
        UsageError: the pool's settings cannot be, or its policy failed.
    """
    supply, asked = supply_of(snapshot), policy(snapshot.settings.policy)
    seen, bounds = _in_force(snapshot)
    settings, values = seen.settings, seen.settings.settings
    situation = situation_of(seen, _for_work(seen, supply) if asked.is_elastic else supply)
    advice = consulted(asked, situation)
    past = Past(snapshot.advices, snapshot.last_scale_up_at, snapshot.last_scale_down_at)
    desired, clamps = clamped(
        advice.workers, supply.total, bounds, values, past, snapshot.now, elastic=asked.is_elastic
    )
    reasons = [
        advice.reason,
        *(notes_of(situation) if asked.is_elastic else ()),
        *clamps,
        *_quarantine_note(supply),
        *(Reason("note", note) for note in snapshot.notes),
    ]
    starts, notes = placed(
        desired - supply.total,
        settings.max_launch_per_cycle,
        snapshot.adapters,
        unserved(supply.workers, snapshot.wanted),
        snapshot.now,
        snapshot.offered,
        _wish(advice, snapshot, supply),
    )
    reasons += notes
    shrink = shrunk(supply, supply.total - desired, snapshot.wanted, everybody=desired == 0, adapters=advice.adapters)
    if shrink.left:
        reasons.append(Reason("whole_groups", f"{shrink.left} more than desired: their groups come and go whole"))
    ready = len(supply.workers)
    return Plan(
        pool=snapshot.pool,
        policy=settings.policy,
        settings_version=settings.version,
        supply=supply.total,
        ready=ready,
        launching=supply.total - ready,
        draining=draining(snapshot),
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


def _in_force(snapshot: Snapshot) -> tuple[Snapshot, Bounds]:
    """Return the snapshot with all settings complete and the bounds of this time of day, and these bounds."""
    settings = snapshot.settings
    values = of_pool(snapshot.pool, settings.policy, settings.settings)
    try:
        bounds = bounds_at(snapshot.now, settings.min_workers, settings.max_workers, values["schedule"])
    except UsageError as error:
        raise UsageError(f"pool {snapshot.pool}: {error}") from error
    settings = replace(settings, settings=values, min_workers=bounds.least, max_workers=bounds.most)
    return replace(snapshot, settings=settings), bounds


def _for_work(snapshot: Snapshot, supply: Supply) -> Supply:
    """Return the supply without its spare capacity.

    A policy that moves the present number would otherwise count what was added to its last advice, and add again.
    """
    spare = snapshot.settings.settings["spare"]
    number = supply.total - without_spare(supply.total, spare)
    return left_of(supply, number, snapshot.wanted) if number else supply


def _wish(advice: Advice, snapshot: Snapshot, supply: Supply) -> Wish:
    own = (pool for pool in snapshot.pools if pool.pool == snapshot.pool)
    last = () if supply.workers else tuple(offer.capabilities for pool in own for offer in pool.offers)
    return Wish(advice.adapters, supply.carried, advice.requires, last)


def _quarantine_note(supply: Supply) -> list[Reason]:
    number = len(supply.quarantined)
    if not number:
        return []
    return [Reason("quarantine", f"{number} in quarantine: neither supply nor surplus (see fleet quarantine list)")]


__all__ = ["CancelGroup", "DrainWorker", "Plan", "ResizeGroup", "StartGroup", "decide"]
