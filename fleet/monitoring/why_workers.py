"""What the pools could do about a task that nobody takes: who would start a worker for it, and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleet.domain.demand import Work
from fleet.domain.durations import format_seconds
from fleet.domain.lanes import satisfies
from fleet.domain.policies import follows_work
from fleet.domain.policies.left_out import in_words
from fleet.domain.policies.viewing import situation_of, takes
from fleet.domain.reasons import Reason
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.supply import supply_of
from fleet.domain.task import TaskRecord
from fleet.errors import UsageError
from fleet.monitoring.sight import Sight, is_told_zero
from fleet.monitoring.why_scaling import why_no_start


@dataclass(frozen=True, slots=True)
class PoolPart:
    """What one pool could do about a task.

    Attributes:
        pool: the pool.
        is_able: whether its workers, present or new ones, could take the task; None where nobody knows.
        reasons: why it starts none for it now, or that it will.
    """

    pool: str
    is_able: bool | None
    reasons: tuple[Reason, ...]


def settings_to_look_with(settings: PoolSettings) -> PoolSettings:
    """Return settings with which a snapshot reads the work and the pools, whatever the pool's policy is."""
    return replace(settings, policy="drain_time", settings={})


def part_of(task: TaskRecord, sight: Sight, settings: PoolSettings, snapshot: Snapshot) -> PoolPart:
    """Return what a pool could do about a task.

    Args:
        task: the task.
        sight: the fleet.
        settings: of the pool, as stored.
        snapshot: of the pool, read with `settings_to_look_with`.
    """
    is_able, lacking = _ability(task, snapshot)
    if is_able is False:
        return PoolPart(snapshot.pool, False, (Reason("pool_cannot", f"pool {snapshot.pool}: {lacking}"),))
    return PoolPart(snapshot.pool, is_able, tuple(_reasons(snapshot, settings, sight)))


def _ability(task: TaskRecord, snapshot: Snapshot) -> tuple[bool | None, str]:
    """Return whether the pool's workers could take the task, and what they lack."""
    try:
        situation = situation_of(snapshot, supply_of(snapshot))
    except UsageError:
        return None, ""
    offers = situation.offers
    if not offers:
        return None, ""
    work = Work(task.queue, task.task, task.requires)
    if any(takes(offer, work) for offer in offers):
        return True, ""
    able = [one for one in offers if task.task in one.handlers and (not one.queues or task.queue in one.queues)]
    if not able:
        return False, f"its workers have no handler {task.task} for queue {task.queue}"
    lacking = {
        name: quantity
        for name, quantity in task.requires.items()
        if all(not satisfies(one.capabilities, {name: quantity}) for one in able)
    }
    what = in_words(lacking or task.requires)
    return False, f"neither its workers nor its adapters offer {what}: no adapter could start a worker for it"


def _reasons(snapshot: Snapshot, settings: PoolSettings, sight: Sight) -> Iterator[Reason]:
    pool = snapshot.pool
    coming = sight.launching(pool)
    if coming:
        yield Reason("launching", f"pool {pool}: {coming} workers are launching")
        return
    if is_told_zero(settings):
        yield Reason("pool_at_zero", f"pool {pool} was scaled to 0: fleet-scaler --pool {pool} starts workers again")
    elif settings.policy == "no":
        yield Reason("policy_no", f"pool {pool} has policy no: its scaler starts nobody by itself")
    elif settings.policy == "fixed":
        asked = sight.asked_for(pool)
        yield Reason("policy_fixed", f"pool {pool} has policy fixed: {asked} workers, however many tasks wait")
    if settings.policy not in ("no",) and not sight.is_attended(pool):
        ago = sight.unattended_for(pool)
        when = "has never decided for it" if ago is None else f"was {format_seconds(ago)} ago"
        yield Reason("scaler_not_running", f"pool {pool}: its last pass {when}: does the scaler run?")
    yield from _limits(snapshot, settings, sight)
    yield from _adapters(snapshot)


def _limits(snapshot: Snapshot, settings: PoolSettings, sight: Sight) -> Iterator[Reason]:
    supply = supply_of(snapshot).total
    if follows_work(settings.policy) and settings.max_workers and supply >= settings.max_workers:
        yield Reason("at_maximum", f"pool {snapshot.pool} has its maximum of {settings.max_workers} workers")


def _adapters(snapshot: Snapshot) -> Iterator[Reason]:
    """Yield why adapters can start nobody, if none can."""
    found = [(each.adapter_id, *why_no_start(each, snapshot.now)) for each in snapshot.adapters]
    if not found:
        yield Reason("no_adapter", f"pool {snapshot.pool}: there is no adapter that could start a worker")
    elif all(code != "can_start" for _, code, _ in found):
        for name, code, text in found:
            yield Reason(code, f"pool {snapshot.pool}: adapter {name} starts nobody: {text}")


def reasons_of_pools(parts: tuple[PoolPart, ...]) -> Iterator[Reason]:
    """Yield the reasons of the pools that could take a task; where none could, why none can."""
    able = [part for part in parts if part.is_able is not False]
    for part in able or parts:
        yield from part.reasons
