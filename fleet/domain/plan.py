"""From a snapshot to a plan: supply, clamps, and who goes first. Pure; the scaler applies what comes out.

Vocabulary: desired is what there should be; launching is ordered and not yet here; ready is here and believed;
draining was told to go, and is neither supply nor surplus. Nor is a worker in quarantine: another is started for it,
and it stays for when it is released; only where nobody is wanted at all it goes too.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.domain.placement import StartGroup, placed
from fleet.domain.policies import policy
from fleet.domain.policies.left_out import notes_of
from fleet.domain.policies.viewing import situation_of
from fleet.domain.reasons import Reason
from fleet.domain.shrinking import CancelGroup, DrainWorker, ResizeGroup, shrunk
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.supply import Supply, draining, supply_of, unserved


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
    """Return what to do so that the pool has as many workers as its policy and clamps say."""
    supply = supply_of(snapshot)
    settings = snapshot.settings
    situation = situation_of(snapshot, supply)
    advice = policy(settings.policy).advise(situation)
    desired, clamps = _clamped(advice.workers, settings)
    reasons = [
        advice.reason,
        *(notes_of(situation) if policy(settings.policy).is_elastic else ()),
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
    )
    reasons += notes
    shrink = shrunk(supply, supply.total - desired, snapshot.wanted, everybody=desired == 0)
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


def _quarantine_note(supply: Supply) -> list[Reason]:
    number = len(supply.quarantined)
    if not number:
        return []
    return [Reason("quarantine", f"{number} in quarantine: neither supply nor surplus (see fleet quarantine list)")]


def _clamped(advised: int, settings: PoolSettings) -> tuple[int, list[Reason]]:
    desired, reasons = advised, list[Reason]()
    if desired < settings.min_workers:
        desired = settings.min_workers
        reasons.append(Reason("raised_to_minimum", f"raised from {advised} to the minimum of {desired}"))
    if settings.max_workers is not None and desired > settings.max_workers:
        text = f"lowered from {desired} to the maximum of {settings.max_workers}"
        reasons.append(Reason("lowered_to_maximum", text))
        desired = settings.max_workers
    return desired, reasons


__all__ = ["CancelGroup", "DrainWorker", "Plan", "ResizeGroup", "StartGroup", "decide"]
