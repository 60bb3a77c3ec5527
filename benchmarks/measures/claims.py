"""What a claim costs beside millions of rows that are none of its business, against an empty table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Series
from benchmarks.outcome import Check, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import Invalid, elapsed, folder, python
from benchmarks.processes import run as run_command
from benchmarks.registry import register
from benchmarks.scale import Scale
from benchmarks.situations import EMPTY, GOAL, KINDS, Places, Situation, situations
from fleet.config import locate
from fleet.domain.execution import Claimant, Finish
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

NOTE = (
    "Microseconds of finishing one task and claiming the next, through Fleet's storage, in a database of its own each; "
    "a million stands for {rows:,} rows. {rounds} short rounds, in each of which all had a turn. {kinds}: a claim "
    "looks into each of 60 lanes."
)


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Compare the situations."""
    with folder() as place:
        places = Places(place, scale.rows, scale.rounds * scale.cycles)
        found = situations(places)
        for _ in range(scale.rounds):
            for one in found:
                one.round(scale.cycles)
        for one in found:
            one.storage.close()
        beyond = _status(places.path(GOAL))
        out, into = fan(place, max(50, scale.rows // 50))
    series = {one.name: one.series for one in found}
    note = NOTE.format(rows=scale.rows, rounds=scale.rounds, kinds=KINDS)
    claims = Table("Claims", ("beside", "µs", "min–max", "x empty"), _rows(found), note)
    ratio = series[GOAL].over(series[EMPTY])
    check = Check(5, f"claim beside {GOAL}, against {EMPTY}", ratio, 1.2, at_least=False)
    return Outcome((claims, _others(scale, beyond, out, into)), (check,))


def _rows(found: Sequence[Situation]) -> tuple[tuple[str, ...], ...]:
    empty = found[0].series
    return tuple(
        (one.name, number(one.series.median), span(one.series), f"{one.series.over(empty):.2f}") for one in found
    )


def _others(scale: Scale, beyond: float, out: float, into: float) -> Table:
    width = f"{max(50, scale.rows // 50):,}"
    rows = (
        (f"`fleet status` beside {GOAL}: beyond `fleet tasks --limit 1`", number(beyond)),
        (f"a parent ends, {width} children are let go", number(out)),
        (f"{width} parents end, their child is let go", number(into)),
    )
    return Table("Beside many rows", ("what", "seconds"), rows)


def _status(database: Path) -> float:
    """Return how many seconds longer `fleet status` takes than another command that reads (medians of 5)."""

    def seconds(*arguments: str) -> Series:
        command = python("-m", "fleet", *arguments, "--db-path", str(database))
        return Series(tuple(elapsed(lambda: run_command(command)) for _ in range(5)))

    return seconds("status").median - seconds("tasks", "--limit", "1").median


def fan(place: Path, width: int) -> tuple[float, float]:
    """Return the seconds in which a parent's children are all let go, and in which a child's parents all end."""
    storage = open_storage(locate(str(place / "fan.db")), create=True)
    who = register(storage, "measured")
    [parent] = storage.queue.enqueue([NewTask("work")]).ids
    storage.queue.enqueue([NewTask("child", depends_on=(parent,))] * width)
    out = elapsed(lambda: _let_go(storage, who))
    if storage.queue.open_totals()["pending"] != width:
        raise Invalid("not all children were let go")
    parents = storage.queue.enqueue([NewTask("work")] * width).ids
    [child] = storage.queue.enqueue([NewTask("last", depends_on=tuple(parents))]).ids
    into = elapsed(lambda: _finish_all(storage, who))
    record = storage.queue.get(child)
    if record is None or record.status is not TaskStatus.PENDING:
        raise Invalid("the last child was not let go")
    storage.close()
    return out, into


def _let_go(storage: Storage, who: Claimant) -> None:
    _finish_all(storage, who)
    while storage.queue.advance():
        continue


def _finish_all(storage: Storage, who: Claimant) -> None:
    lanes = [(lane.lane_id, 0, 0) for lane in storage.queue.lanes() if lane.task == "work"]
    finishes: list[Finish] = []
    while True:
        tasks = storage.queue.finish_and_claim(who, finishes, lanes, 100).tasks
        finishes = [Finish(task.fence, TaskStatus.DONE) for task in tasks]
        if not tasks:
            return
