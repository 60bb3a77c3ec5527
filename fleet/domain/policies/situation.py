"""What a policy sees: a pool at one moment, reduced to what it can serve. Plain values, made by `situation_of`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.demand import Offered, PastAdvice, Work
from fleet.domain.placement import AdapterState
from fleet.domain.snapshot import PoolWorker


@dataclass(frozen=True, slots=True)
class Crew:
    """Workers of a pool that take the same.

    Attributes:
        takes: what they take; None where that is unknown, and whatever the pool can serve is assumed.
        here: how many are here and believed.
        coming: how many are ordered and not yet here.
    """

    takes: Offered | None
    here: int = 0
    coming: int = 0

    @property
    def size(self) -> int:
        """How many there are, or will be."""
        return self.here + self.coming


@dataclass(frozen=True, slots=True)
class Situation:
    """A pool at one moment, as far as a policy is about it.

    Attributes:
        now: the moment.
        pool: the pool.
        settings: the policy's own settings, complete: what was not said has its default.
        supply: workers that are here, or ordered and not yet here; draining ones and those in quarantine not included.
        workers: those that are here and believed.
        demand: open tasks by kind that this pool can serve and that count for it. Of a pool that never had a worker
            all tasks in its queues, as one for all of them together (`is_untold`).
        is_untold: whether nobody knows yet what its workers take.
        adapters: who may be asked to start workers.
        sizes: how many of the supply each adapter carries, by its id.
        min_workers, max_workers: the clamps' bounds; the advice is held to them anyway.
        pace_window: seconds back from now over which `Work.busy` and `Work.arrivals` are counted.
        advices: what earlier passes advised, oldest first.
        last_cycle_at, last_scale_up_at, last_scale_down_at: of earlier passes.
        slots: tasks that one worker executes at a time: the mean of those here, else what the template says.
        boot_seconds: how long it takes from an order to a worker: the median of the groups that are here, 0 where
            there is none.
        crews: the supply by what it takes; what is missing in it takes whatever the pool can serve.
        offered: what the pool's workers offer by its template, wherever they are started.
        offers: what workers of this pool take: those here, and new ones.
        unserved: open tasks in this pool's queues that no pool can serve.
        elsewhere: tasks that this pool could serve too, each with the pool for which they count.
    """

    now: datetime
    pool: str
    settings: Mapping[str, Any]
    supply: int
    workers: tuple[PoolWorker, ...] = ()
    demand: tuple[Work, ...] = ()
    is_untold: bool = False
    adapters: tuple[AdapterState, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    min_workers: int = 0
    max_workers: int | None = None
    pace_window: float = 0.0
    advices: tuple[PastAdvice, ...] = ()
    last_cycle_at: datetime | None = None
    last_scale_up_at: datetime | None = None
    last_scale_down_at: datetime | None = None
    slots: float = 1.0
    boot_seconds: float = 0.0
    crews: tuple[Crew, ...] = ()
    offered: Mapping[str, float] = field(default_factory=dict)
    offers: tuple[Offered, ...] = ()
    unserved: tuple[Work, ...] = ()
    elsewhere: tuple[tuple[Work, str], ...] = ()

    @property
    def pending(self) -> int:
        """Tasks of this pool that wait for a worker."""
        return sum(work.pending for work in self.demand)

    @property
    def running(self) -> int:
        """Tasks of this pool that run."""
        return sum(work.running for work in self.demand)

    @property
    def outstanding(self) -> int:
        """Tasks of this pool that wait or run."""
        return self.pending + self.running
