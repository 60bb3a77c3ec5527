"""No-op tasks end to end on PostgreSQL: Fleet beside procrastinate and PgQueuer, at equal durability."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.compare import Series
from benchmarks.contestants import Run
from benchmarks.outcome import Check, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.postgresql.contestants import Contestant
from benchmarks.postgresql.ours import DEFAULT, STRICT
from benchmarks.postgresql.server import Server, serving
from benchmarks.postgresql.turns import DURABILITIES, contestants, on_own_database, setting
from benchmarks.scale import Scale

GOAL = 2.0
NOTE = (
    "Tasks per second from the first claim to the last end that was written, by the times of the rows; every task was "
    "waiting before, and all workers begin together. Medians of {runs} rounds, in each of which all had a turn; "
    "the ratio is the median of those within each round. That each task was done once was checked in every run."
)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Compare all of them, with and without waiting for the disk."""
    everybody = contestants(peers)
    tables, checks, bars = [], [], {}
    with serving() as server:
        tables.append(setting(server, everybody))
        for waits in DURABILITIES:
            for workers in numbers(scale):
                rates = _rates(server, everybody, scale, workers, waits)
                tables.append(_table(everybody, rates, scale, workers, waits))
                checks += list(_checks(everybody, rates, workers, waits))
                if workers == scale.compared and not waits:
                    bars = rates
    return Outcome(tuple(tables), tuple(checks), bars)


def numbers(scale: Scale) -> tuple[int, ...]:
    """Return the numbers of workers: the goal speaks of 1, 4 and 8."""
    return tuple(workers for workers in scale.workers if workers != 2) or scale.workers


def _rates(
    server: Server, everybody: Sequence[Contestant], scale: Scale, workers: int, waits: bool
) -> dict[str, Series]:
    def turn(one: Contestant, url: str) -> Run:
        return one.run(url, max(50, int(scale.tasks * one.share)), workers)

    found = on_own_database(server, everybody, scale.runs, waits, turn)
    return {name: Series(tuple(run.rate for run in runs)) for name, runs in found.items()}


def _table(everybody: Sequence[Contestant], rates: dict[str, Series], scale: Scale, workers: int, waits: bool) -> Table:
    ours = rates[DEFAULT.name]
    rows = tuple(
        (
            one.name,
            f"{max(50, int(scale.tasks * one.share)):,}",
            number(rates[one.name].median),
            span(rates[one.name]),
            number(ours.paired(rates[one.name]).median),
        )
        for one in everybody
    )
    title = f"No-op tasks on PostgreSQL, {workers} worker{'s' * (workers > 1)}, {DURABILITIES[waits]}"
    columns = ("contestant", "tasks", "tasks/s", "min–max", "Fleet's / its")
    return Table(title, columns, rows, NOTE.format(runs=scale.runs))


def _checks(everybody: Sequence[Contestant], rates: dict[str, Series], workers: int, waits: bool) -> Iterable[Check]:
    rivals = [one for one in everybody if one not in (DEFAULT, STRICT)]
    if not rivals:
        return
    fastest = max(rivals, key=lambda one: rates[one.name].median)
    what = f"no-op on PostgreSQL, {workers} workers, {DURABILITIES[waits]}: Fleet against {fastest.name}"
    yield Check(10, what, rates[DEFAULT.name].paired(rates[fastest.name]).median, GOAL)
