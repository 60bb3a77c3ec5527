"""How many workers a load takes, given what those who are here can do. Pure, and shared by policies.

A load is a number of workers, not necessarily whole, that one kind of tasks keeps busy. Kinds share workers: those that
few can do are given out first, to whoever can do least else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from fleet.domain.adapters import AdapterStatus
from fleet.domain.demand import Work
from fleet.domain.lanes import capability_key, room_for, satisfies
from fleet.domain.placement import AdapterState
from fleet.domain.policies.setting import MOST_WORKERS
from fleet.domain.policies.situation import Crew, Situation

_DUST = 1e-9
"""What sums of fractions may be off."""


@dataclass(frozen=True, slots=True)
class Staffing:
    """What a load takes.

    Attributes:
        used: of the workers that are here or coming, those that it needs.
        missing: workers that it needs beyond them.
        requires: what those must offer.
    """

    used: int
    missing: int
    requires: tuple[Mapping[str, float], ...] = ()

    @property
    def total(self) -> int:
        """All that it needs."""
        return self.used + self.missing


@dataclass
class _Class:
    """Kinds of tasks that the same workers can do: which crews, what they require, how many workers they load."""

    crews: frozenset[int]
    requires: Mapping[str, float]
    load: float = 0.0


def slots_of(situation: Situation, work: Work) -> float:
    """Return how many tasks of this kind one worker executes at a time: its slots, and what it offers, bound them."""
    rooms = [room_for(work.requires, offer.capabilities) for offer in situation.offers]
    known = [room for room in rooms if room]
    return max(1.0, min(situation.slots, max(known))) if known else max(1.0, situation.slots)


def whole(workers: float) -> int:
    """Return the whole workers that so much takes."""
    return max(0, ceil(workers - _DUST))


def staffed(situation: Situation, loads: Sequence[float]) -> Staffing:
    """Return what the loads take.

    Args:
        situation: the pool.
        loads: workers that each kind of `situation.demand` keeps busy, in its order.
    """
    crews = _all_crews(situation)
    left = [float(crew.size) for crew in crews]
    classes = sorted(_classes(situation, crews, loads), key=lambda each: sum(crews[at].size for at in each.crews))
    breadth = [sum(at in each.crews for each in classes) for at in range(len(crews))]
    for each in classes:
        for at in sorted(each.crews, key=lambda at: breadth[at]):
            given = min(each.load, left[at])
            each.load -= given
            left[at] -= given
    # Crews that can do the same are one: each half of a worker of theirs would be counted as a whole one.
    groups: dict[frozenset[int], float] = {}
    for at, crew in enumerate(crews):
        able = frozenset(place for place, each in enumerate(classes) if at in each.crews)
        groups[able] = groups.get(able, 0.0) + crew.size - left[at]
    missing, requires = _newcomers([each for each in classes if each.load > _DUST])
    return Staffing(sum(map(whole, groups.values())), missing, requires)


def _all_crews(situation: Situation) -> list[Crew]:
    """Return the crews, and one for what of the supply is in none."""
    rest = situation.supply - sum(crew.size for crew in situation.crews)
    return [*situation.crews, *([Crew(None, here=rest)] if rest > 0 else [])]


def _classes(situation: Situation, crews: Sequence[Crew], loads: Sequence[float]) -> list[_Class]:
    classes: dict[tuple[frozenset[int], str], _Class] = {}
    for work, load in zip(situation.demand, loads, strict=True):
        if load > 0:
            able = frozenset(at for at, crew in enumerate(crews) if can_do(crew, work))
            key = (able, capability_key(work.requires))
            classes.setdefault(key, _Class(able, work.requires)).load += load
    return list(classes.values())


def can_do(crew: Crew, work: Work) -> bool:
    """Return whether workers of this crew can execute tasks of this kind.

    Of launches the handlers are a guess, and those of `work` are offered by some worker of the pool: what they offer
    decides alone.
    """
    if crew.takes is None or not work.task:
        return True
    if not crew.here:
        return satisfies(crew.takes.capabilities, work.requires)
    offer = crew.takes
    return (
        work.task in offer.handlers
        and (not offer.queues or work.queue in offer.queues)
        and satisfies(offer.capabilities, work.requires)
    )


def _newcomers(classes: Sequence[_Class]) -> tuple[int, tuple[Mapping[str, float], ...]]:
    """Return how many new workers do what is left, and what they must offer: the demanding first, who help others."""
    spare: list[tuple[Mapping[str, float], float]] = []
    number, requires = 0, list[Mapping[str, float]]()
    for each in sorted(classes, key=lambda each: (-len(each.requires), capability_key(each.requires))):
        load = each.load
        for at, (offer, free) in enumerate(spare):
            if satisfies(offer, each.requires):
                given = min(load, free)
                spare[at] = (offer, free - given)
                load -= given
        new = whole(load)
        if new:
            spare.append((each.requires, new - load))
            number += new
            requires.append(each.requires)
    return number, tuple(requires)


# From what a load takes to a number


def number_for(situation: Situation, least: Staffing, most: Staffing | None = None) -> int:
    """Return the number of workers that there should be.

    Nobody is taken away while somebody is missing: a number says how many there are to be, not who. Only where the
    maximum leaves no room for those who are missing for what is outstanding, those who are not needed go first: they
    cannot do it, or they would.

    Args:
        situation: the pool.
        least: what is needed.
        most: what there may be before somebody is too many; None: not more than is needed.
    """
    supply, used = situation.supply, (most or least).used
    if not least.missing:
        return held(situation, min(supply, max(least.used, used)))
    if not _can_start(situation, least.requires):
        return held(situation, supply)
    bound = situation.max_workers
    if bound is not None and supply >= bound:
        # What was done lately keeps nobody from making room: only what is outstanding does.
        now = staffed(situation, one_each(situation))
        needed = min(least.used, now.used)
        if now.missing and needed < supply:
            return held(situation, max(needed, bound - least.missing))
    return held(situation, supply + least.missing)


def held(situation: Situation, number: int) -> int:
    """Return `number`, or more where less would harm: what runs stays served, and who is coming for work that nobody
    here can do is not sent back. However much waits, it is not more than a pool can have."""
    least = max(running_floor(situation), situation.supply if _awaited(situation) else 0)
    return min(max(number, least), MOST_WORKERS)


def running_floor(situation: Situation) -> int:
    """Return how many workers what runs takes."""
    return whole(sum(work.running / slots_of(situation, work) for work in situation.demand))


def _awaited(situation: Situation) -> bool:
    """Return whether some work waits that only workers on their way can do: launches are withdrawn first."""
    if not any(crew.coming for crew in situation.crews):
        return False
    here = [crew for crew in _all_crews(situation) if crew.here]
    return any(work.pending and not any(can_do(crew, work) for crew in here) for work in situation.demand)


def lonely(situation: Situation) -> list[Mapping[str, float]]:
    """Return what waiting tasks require that nobody here or coming can do, and that can be started now."""
    crews = _all_crews(situation)
    found = {
        capability_key(work.requires): work.requires
        for work in situation.demand
        if work.pending and not any(can_do(crew, work) for crew in crews)
    }
    return [requires for _, requires in sorted(found.items()) if _can_start(situation, [requires])]


def one_more(situation: Situation) -> tuple[int, str]:
    """Return the number with which somebody is started who can do what nobody here can, and why.

    At the maximum one who is not needed goes first; where all are needed, that work waits for its turn.
    """
    supply, most = situation.supply, situation.max_workers
    text = "tasks wait that nobody here can do"
    if most is None or supply < most:
        return supply + 1, f"{text}: one worker more"
    if _needed_now(situation) < supply:
        return held(situation, supply - 1), f"{text}: one worker less, to make room for one who can"
    return supply, f"{text}, and the maximum leaves no room"


def _needed_now(situation: Situation) -> int:
    """Return how many of the supply what is outstanding needs, at a place for each task."""
    return staffed(situation, one_each(situation)).used


def one_each(situation: Situation) -> list[float]:
    """Return the loads with which nothing waits: a place for each task that is outstanding."""
    return [(work.pending + work.running) / slots_of(situation, work) for work in situation.demand]


def _can_start(situation: Situation, wanted: Sequence[Mapping[str, float]]) -> bool:
    """Return whether launches would bring some of what is wanted.

    Where nothing can be started at all, the plan says why; but where only others could be started, they would be
    started in vain.
    """
    open_now = [one for one in situation.adapters if _may_start(one, situation)]
    if not open_now or any(not requires for requires in wanted):
        return True
    return any(brings(situation, one, requires) for one in open_now for requires in wanted)


def brings(situation: Situation, adapter: AdapterState, requires: Mapping[str, float]) -> bool:
    """Return whether workers that this adapter starts would offer what is required, as far as is known."""
    base = adapter.limits.base_capabilities
    if satisfies({**(base or {}), **situation.offered}, requires):
        return True
    # Of a place that does not say, it is what the last workers offered; one who is here knows better.
    unknown = base is None and not situation.workers
    return unknown and any(satisfies(one.capabilities, requires) for one in situation.offers)


def _may_start(adapter: AdapterState, situation: Situation) -> bool:
    if adapter.status is AdapterStatus.PAUSED or adapter.room == 0:
        return False
    return adapter.backoff_until is None or adapter.backoff_until <= situation.now
