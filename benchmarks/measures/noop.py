"""No-op tasks end to end: Fleet, its peers and the floors, with 1 to 8 workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from benchmarks.compare import Series, in_turns
from benchmarks.contestants import Contestant, Run, tasks_of
from benchmarks.floors import BareFloor, SchemaFloor
from benchmarks.ours import DEFAULT, STRICT
from benchmarks.outcome import Check, Figure, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import folder
from benchmarks.scale import Scale

F1, F1S = BareFloor(), SchemaFloor()
FAIR = 2 / 3
NOTE = (
    "Tasks per second from the start of the first execution to the start of the last; every task was waiting before. "
    "So nobody's start counts before its first worker works; Fleet's and huey's further workers are forked meanwhile, "
    "and everybody else's begin together. Spread: the slowest worker's part of the half of the tasks that were begun "
    "first, against the fastest's. Medians of {runs} rounds, in each of which all had a turn. That each task was done "
    "once was checked in every run."
)


def turn(contestant: Contestant, tasks: int, workers: int, seconds: float) -> Run:
    """Let a contestant do its share of so many tasks."""
    with folder() as place:
        return contestant.run(place, tasks_of(contestant, tasks), workers, seconds)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Compare all of them."""
    contestants: tuple[Contestant, ...] = (DEFAULT, STRICT, F1, F1S, *peers)
    turns: dict[tuple[int, str], Callable[[], Run]] = {
        (workers, one.name): partial(turn, one, scale.tasks, workers, 0.0)
        for workers in scale.workers
        for one in contestants
    }
    runs = in_turns(scale.runs, turns)
    rates = {key: Series(tuple(run.rate for run in found)) for key, found in runs.items()}
    fairness = {key: Series(tuple(run.fairness for run in found)) for key, found in runs.items()}
    tables = [_table(workers, contestants, rates, fairness, scale) for workers in scale.workers]
    at = scale.compared
    return Outcome(
        (_settings(contestants, scale), *tables),
        tuple(_checks({one.name: rates[at, one.name] for one in contestants}, peers, at))
        + tuple(_fair(one, fairness[at, one.name], at) for one in (DEFAULT, STRICT)),
        {one.name: rates[at, one.name] for one in contestants},
        tuple(
            Figure(_spread(one, workers), fairness[workers, one.name].median)
            for workers in scale.workers
            if workers > at
            for one in (DEFAULT, STRICT)
        ),
    )


def _settings(contestants: Iterable[Contestant], scale: Scale) -> Table:
    rows = tuple((one.name, one.settings, f"{tasks_of(one, scale.tasks):,}") for one in contestants)
    note = "Whose claim takes longer the more tasks wait has fewer of them, which is in its favour."
    return Table("Who is compared, and how they are used", ("contestant", "settings", "tasks"), rows, note)


def _table(
    workers: int,
    contestants: Sequence[Contestant],
    rates: dict[tuple[int, str], Series],
    fairness: dict[tuple[int, str], Series],
    scale: Scale,
) -> Table:
    floor = rates[workers, F1.name]
    rows = []
    for one in contestants:
        rate, fair = rates[workers, one.name], fairness[workers, one.name]
        shares = "" if workers == 1 else f"{fair.median:.2f}"
        rows.append((one.name, number(rate.median), span(rate), number(rate.over(floor)), shares))
    title = f"No-op tasks, {workers} worker{'s' * (workers > 1)}"
    return Table(
        title, ("contestant", "tasks/s", "min–max", "x F1", "spread"), tuple(rows), NOTE.format(runs=scale.runs)
    )


def _checks(rates: dict[str, Series], peers: Sequence[Peer], workers: int) -> Iterable[Check]:
    bounds = {"huey": 15.0, "litequeue": 10.0, "flatmachines": 80.0}
    ours, strict = rates[DEFAULT.name], rates[STRICT.name]
    for peer in peers:
        if peer.package in bounds:
            what = f"no-op, {workers} workers: Fleet against {peer.name}"
            yield Check(1, what, ours.over(rates[peer.name]), bounds[peer.package])
    yield Check(1, f"no-op, {workers} workers: Fleet against F1", ours.over(rates[F1.name]), 2.5)
    yield Check(1, f"no-op, {workers} workers: --prefetch 1 against F1", strict.over(rates[F1.name]), 0.45)
    yield Check(1, f"no-op, {workers} workers: --prefetch 1 against F1s", strict.over(rates[F1S.name]), 0.8)
    for peer in peers:
        if peer.package == "huey":
            what = f"no-op, {workers} workers: --prefetch 1 against {peer.name}"
            yield Check(1, what, strict.over(rates[peer.name]), 3.0)


def _fair(one: Contestant, fairness: Series, workers: int) -> Check:
    return Check(1, _spread(one, workers), fairness.median, FAIR)


def _spread(one: Contestant, workers: int) -> str:
    return f"no-op, {workers} workers: slowest worker against fastest, {one.name}"
