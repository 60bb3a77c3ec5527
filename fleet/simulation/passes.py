"""The scaler's passes in virtual time: the snapshot that each sees, and what it remembers of earlier ones."""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime, timedelta

from fleet.domain import clamps
from fleet.domain.demand import PastAdvice, PoolOffer, Work
from fleet.domain.plan import Plan, decide
from fleet.domain.policies import policy
from fleet.domain.policies.in_force import in_force
from fleet.domain.policies.setting import Kind
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.simulation.crew import POOL
from fleet.simulation.fleet import Fleet
from fleet.simulation.statistics import MINUTE, Statistics

PACE = 300.0
"""Seconds over which busy time and arrivals are counted, and up to a minute more."""

LEAST_MEMORY = 600.0
"""Seconds for which advice is remembered at least."""


class Passes:
    """One pool's passes.

    Attributes:
        number: how many there were.
        flaps: how often they changed direction.
        memory: seconds after which nothing that has happened matters any more.
        follows_the_clock: whether settings depend on the time of day.
    """

    def __init__(self, fleet: Fleet, settings: PoolSettings) -> None:
        self._fleet = fleet
        self._settings = settings
        self._advices: deque[PastAdvice] = deque()
        self._last: datetime | None = None
        self._up: datetime | None = None
        self._down: datetime | None = None
        self._direction = 0
        self.number = 0
        self.flaps = 0
        self.memory = memory(settings)
        self.follows_the_clock = follows_the_clock(settings)
        self._offers = tuple(yard.offered for yard in fleet.yards)

    def run(self) -> Plan:
        """Decide, and let the fleet do it."""
        plan, before = decide(self._snapshot()), self._fleet.launches
        self._fleet.apply(plan)
        self._remember(plan, has_launched=self._fleet.launches > before)
        return plan

    def _snapshot(self) -> Snapshot:
        fleet = self._fleet
        now = fleet.moment()
        # As a store counts: statistics are by minutes, so the window begins with a whole one; nothing came before.
        since = (fleet.now - PACE) // MINUTE * MINUTE
        work = self._work(since)
        workers = fleet.seen()
        return Snapshot(
            now=now,
            pool=POOL,
            settings=self._settings,
            groups=tuple(group.record for group in fleet.groups.values()),
            workers=workers,
            dead_workers=frozenset(),
            dead_groups=frozenset(),
            waiting=sum(one.pending for one in work),
            running=sum(one.running for one in work),
            adapters=tuple(yard.state() for yard in fleet.yards),
            wanted=tuple(line.lane for line in fleet.lines if line.pending),
            work=work,
            pools=(PoolOffer(POOL, len(workers), self._offers),),
            pace_window=fleet.now - since,
            advices=tuple(self._advices),
            last_cycle_at=self._last,
            last_scale_up_at=self._up,
            last_scale_down_at=self._down,
        )

    def _work(self, since: float) -> tuple[Work, ...]:
        lines, weights = self._fleet.lines, Counter[Statistics]()
        for line in lines:
            weights[line.statistics] += line.weight
        found = (line.work(self._fleet.now, since, weights[line.statistics]) for line in lines)
        return tuple(work for work in found if work is not None)

    def _remember(self, plan: Plan, *, has_launched: bool) -> None:
        now = self._fleet.moment()
        self.number += 1
        self._last = now
        direction = 1 if has_launched else -1 if plan.drains or plan.cancels or plan.resizes else 0
        if direction:
            self.flaps += direction == -self._direction
            self._direction = direction
        if plan.starts:
            self._up = now
        if plan.drains or plan.cancels or plan.resizes:
            self._down = now
        last = self._advices[-1] if self._advices else None
        said = (plan.advised, plan.desired, plan.supply)
        if last is not None and (last.advised, last.desired, last.supply) == said:
            self._advices[-1] = PastAdvice(last.since, now, *said)
        else:
            self._advices.append(PastAdvice(now, now, *said))
        while self._advices[0].until < now - timedelta(seconds=self.memory):
            self._advices.popleft()


def memory(settings: PoolSettings) -> float:
    """Return how many seconds back the settings in force can look."""
    values = in_force(settings.policy, settings.settings)
    known = (*policy(settings.policy).settings, *clamps.SETTINGS)
    spans = [values[each.name] for each in known if each.kind is Kind.DURATION and values[each.name]]
    return max([LEAST_MEMORY, *map(float, spans)])


def follows_the_clock(settings: PoolSettings) -> bool:
    """Return whether what is in force may depend on the time of day: schedules are settings of a form of their own."""
    values = in_force(settings.policy, settings.settings)
    return any(values[each.name] for each in clamps.SETTINGS if each.kind is Kind.OWN)
