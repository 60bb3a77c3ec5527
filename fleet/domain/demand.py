"""What there is to do, as a scaler pass reads it: open tasks by kind, what pools offer, what was advised before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Work:
    """Open tasks of one kind: of one lane, as far as demand is about it.

    Tasks of paused queues, and those that a limit, a dependency or their time holds back, are not `pending`.

    Attributes:
        queue: the queue.
        task: the handler's name.
        requires: what a worker must offer.
        assigned_worker: the only worker that may claim them, or "" for any.
        pending: tasks that a worker could claim now.
        running: tasks that run.
        seconds: how long one takes, measured over its recent executions; None where none was measured.
        busy: seconds of execution finished within `Snapshot.pace_window` seconds before now (statistics by minutes):
            what fast tasks cost between two looks at the queue.
        arrivals: tasks enqueued within `Snapshot.pace_window`; None where nobody counted them.
        longest_running: seconds for which the oldest running one has run; 0 where none runs.
    """

    queue: str
    task: str
    requires: Mapping[str, float] = field(default_factory=dict)
    assigned_worker: str = ""
    pending: int = 0
    running: int = 0
    seconds: float | None = None
    busy: float = 0.0
    arrivals: int | None = None
    longest_running: float = 0.0


@dataclass(frozen=True, slots=True)
class Offered:
    """What some workers of a pool take: those that are here, or the last that were.

    Attributes:
        handlers: names of their handlers.
        queues: queues that they serve; empty means all.
        capabilities: what each of them offers.
    """

    handlers: frozenset[str]
    queues: tuple[str, ...] = ()
    capabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolOffer:
    """A pool, as far as it takes work that another could take too.

    Attributes:
        pool: its name.
        slots: tasks that its live workers can execute at a time.
        offers: what they take; with no worker here, what the last ones registered (`scheduler.offers_json`).
        queues: the queues of its template; empty means all. What is known of a pool that never had a worker.
        offered: what its workers offer by its template, wherever they are started.
    """

    pool: str
    slots: int = 0
    offers: tuple[Offered, ...] = ()
    queues: tuple[str, ...] = ()
    offered: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastAdvice:
    """What earlier passes advised, from the ledger: one row of it.

    Attributes:
        since: when it was first advised.
        until: when it was last repeated.
        advised: what the policy said.
        desired: the same after the clamps.
        supply: how many workers there were.
    """

    since: datetime
    until: datetime
    advised: int
    desired: int
    supply: int
