"""How long the simulation itself takes: tasks by the million, workers by the thousand."""

from __future__ import annotations

import resource
from collections.abc import Sequence

from benchmarks.outcome import Check, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.processes import elapsed
from benchmarks.scale import Scale
from benchmarks.trials import Trial, contestants
from fleet.simulation import Outcome as Simulated
from fleet.simulation import run

GOAL = 9
EVERY = 5.0
SPAN = 3600.0
NOTE = (
    "One process, one core; an hour of virtual time with a pass every 5 s; tasks of 30 s on average, whose rate goes "
    "up and down so that at its peak all workers are needed."
)


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Simulate an hour with each policy."""
    tasks, workers = scale.rows, scale.registered
    rate = tasks / SPAN
    trial = Trial(
        "an hour",
        (f"day:peak={1.8 * rate:.4f},low={0.2 * rate:.4f},period=1h",),
        "exponential:30s",
        until=SPAN,
        every=EVERY,
        most=workers,
    )
    scenario = trial.scenario(1)
    rows, slowest = [], 0.0
    for each in contestants(trial, scenario):
        found: list[Simulated] = []
        seconds = elapsed(lambda each=each, found=found: found.append(run(scenario, each.settings)))
        slowest = max(slowest, seconds)
        outcome = found[0]
        rows.append(
            (each.name, number(seconds), f"{outcome.done:,}", f"{outcome.most_workers:,}", f"{outcome.passes:,}")
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = f"{NOTE} The process took {number(memory)} MiB at most."
    table = Table("Simulation", ("policy", "seconds", "tasks", "workers at most", "passes"), tuple(rows), note)
    what = f"{len(scenario.tasks):,} tasks, at most {workers:,} workers: seconds of the slowest policy"
    return Outcome((table,), (Check(GOAL, what, slowest, 60.0, at_least=False, unit=" s"),))
