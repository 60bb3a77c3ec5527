"""How much of everything a run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes of one run.

    Attributes:
        name: what to call it.
        runs: rounds of what is compared; in each, every contestant has its turn.
        workers: numbers of workers.
        tasks: no-op tasks of the fastest contestants; the others have a share of it (`Contestant.share`).
        pausing: tasks of 10 ms for each worker.
        bulk: rows enqueued in one go.
        singles: tasks enqueued one by one, in each round.
        beside: tasks enqueued beside a busy fleet, in each round.
        idle_workers: workers of an idle fleet.
        idle_seconds: for so long its CPU time is counted.
        alone: tasks whose latency is measured one by one.
        bursts: bursts whose latency is measured.
        starts: numbers of workers that are started.
        rows: rows that stand for a million.
        rounds: rounds of the claims measure, which are short.
        cycles: claims in each of those.
        registered: workers in the registry of a scaler's pass.
        beating: workers whose heartbeats are measured.
        commands: starts of each command.
    """

    name: str
    runs: int
    workers: tuple[int, ...]
    tasks: int
    pausing: int
    bulk: int
    singles: int
    beside: int
    idle_workers: int
    idle_seconds: float
    alone: int
    bursts: int
    starts: tuple[int, ...]
    rows: int
    rounds: int
    cycles: int
    registered: int
    beating: int
    commands: int

    @property
    def few(self) -> int:
        """Rounds of what takes long, and varies little."""
        return (self.runs + 1) // 2

    @property
    def compared(self) -> int:
        """The number of workers that the goals speak of, or the nearest there is."""
        return min(self.workers, key=lambda workers: abs(workers - 4))


FULL = Scale(
    name="full",
    runs=5,
    workers=(1, 2, 4, 8),
    tasks=40_000,
    pausing=100,
    bulk=100_000,
    singles=200,
    beside=300,
    idle_workers=16,
    idle_seconds=20.0,
    alone=300,
    bursts=40,
    starts=(1, 10, 100),
    rows=1_000_000,
    rounds=9,
    cycles=300,
    registered=10_000,
    beating=1_000,
    commands=15,
)
QUICK = Scale(
    name="quick",
    runs=2,
    workers=(1, 4),
    tasks=5_000,
    pausing=15,
    bulk=20_000,
    singles=50,
    beside=60,
    idle_workers=16,
    idle_seconds=3.0,
    alone=50,
    bursts=8,
    starts=(1, 20),
    rows=20_000,
    rounds=3,
    cycles=60,
    registered=1_000,
    beating=200,
    commands=3,
)
SHORT = Scale(
    name="short",
    runs=1,
    workers=(2,),
    tasks=400,
    pausing=5,
    bulk=500,
    singles=10,
    beside=10,
    idle_workers=2,
    idle_seconds=0.5,
    alone=5,
    bursts=2,
    starts=(1, 4),
    rows=1_000,
    rounds=2,
    cycles=20,
    registered=20,
    beating=20,
    commands=1,
)
