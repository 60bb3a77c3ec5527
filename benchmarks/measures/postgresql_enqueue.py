"""Enqueueing on PostgreSQL: one by one, and a thousand in a call; every commit waits for the disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.compare import Series
from benchmarks.outcome import Figure, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.postgresql.contestants import Contestant
from benchmarks.postgresql.ours import DEFAULT
from benchmarks.postgresql.server import serving
from benchmarks.postgresql.turns import on_own_database, rivals
from benchmarks.processes import elapsed
from benchmarks.scale import Scale

MANY = 1_000


class Times(NamedTuple):
    """Microseconds of one enqueue by itself, and of each of those that come in one call."""

    one: float
    each_of_many: float


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure both."""
    everybody = (DEFAULT, *rivals(peers))
    many = min(MANY, scale.bulk)

    def turn(contestant: Contestant, url: str) -> Times:
        return _times(contestant, url, scale, many)

    with serving() as server:
        found = on_own_database(server, everybody, scale.runs, True, turn)
    tables, figures = [], []
    for title, place in (("one by one", 0), (f"{many:,} in a call", 1)):
        times = {name: Series(tuple(each[place] for each in turns)) for name, turns in found.items()}
        mine = times[DEFAULT.name]
        rows = tuple(
            (name, number(each.median), span(each), number(mine.paired(each).median)) for name, each in times.items()
        )
        note = (
            f"Microseconds a task; medians of calls ({scale.singles} single ones, {_calls(scale, many)} of many), and "
            f"of {scale.runs} rounds. Every commit waits for the disk."
        )
        columns = ("who", "µs", "min–max", "Fleet's time / its")
        tables.append(Table(f"Enqueueing on PostgreSQL, {title}", columns, rows, note))
        figures += [
            Figure(f"enqueueing on PostgreSQL, {title}: Fleet's time against {name}", mine.paired(each).median)
            for name, each in times.items()
            if name != DEFAULT.name
        ]
    return Outcome(tuple(tables), figures=tuple(figures))


def _calls(scale: Scale, many: int) -> int:
    return max(1, scale.bulk // many // 5)


def _times(contestant: Contestant, url: str, scale: Scale, many: int) -> Times:
    with contestant.enqueuer(url) as (one, several):
        one(0)
        several(2)
        single = Series(tuple(elapsed(partial(one, n)) for n in range(scale.singles)))
        bulk = Series(tuple(elapsed(partial(several, many)) for _ in range(_calls(scale, many))))
    return Times(single.median * 1e6, bulk.median * 1e6 / many)
