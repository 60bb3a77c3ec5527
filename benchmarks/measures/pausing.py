"""Tasks of 10 ms end to end: how near everybody comes to workers that only wait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.compare import Series, in_turns
from benchmarks.contestants import Contestant, Run
from benchmarks.floors import BareFloor
from benchmarks.ours import DEFAULT, STRICT
from benchmarks.outcome import Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import folder
from benchmarks.scale import Scale

SECONDS = 0.01
NOTE = (
    "Each task waits 10 ms; ideal: as many tasks per second as the workers could do if nothing else took time. "
    "Medians of {runs} rounds, in each of which all had a turn."
)


def _turn(contestant: Contestant, tasks: int, workers: int) -> Run:
    with folder() as place:
        return contestant.run(place, tasks, workers, SECONDS)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Compare all of them."""
    workers = scale.compared
    contestants: tuple[Contestant, ...] = (DEFAULT, STRICT, BareFloor(), *peers)
    runs = in_turns(
        scale.runs, {one.name: partial(_turn, one, scale.pausing * workers, workers) for one in contestants}
    )
    ideal = workers / SECONDS
    rows = []
    for name, found in runs.items():
        rate = Series(tuple(run.rate for run in found))
        rows.append((name, number(rate.median), span(rate), f"{rate.median / ideal:.2f}"))
    title = f"Tasks of 10 ms, {workers} workers"
    return Outcome(
        (Table(title, ("contestant", "tasks/s", "min–max", "of ideal"), tuple(rows), NOTE.format(runs=scale.runs)),)
    )
