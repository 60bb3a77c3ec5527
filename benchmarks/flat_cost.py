"""What a claim and a finish cost beside backlogs and histories, against an empty table in the same run.

Rounds alternate between the two; the ratio is the median of the rounds' ratios. Exits 1 when one is above its bound.

Usage: flat_cost.py [--scale X] [--rounds N] [--cycles N] [--only WORD] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import filling
from cycles import Cycler

from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage

BOUND = 1.3
QUICK_SCALE = 0.02
LARGE_PAYLOAD = '{"text":"%s"}' % ("x" * 100_000)
HANDLERS = [f"handler-{number}" for number in range(20)]
QUEUES = ["first", "second", "third"]

Fill = Callable[[Storage, Path, int], object]


def _nothing(storage: Storage, path: Path, count: int) -> None:
    """Leave the database empty."""


def _pending(task: NewTask, storage: Storage, path: Path, count: int) -> None:
    filling.copies(storage, path, task, count)


def _future(storage: Storage, path: Path, count: int) -> None:
    filling.copies(storage, path, NewTask("mine", priority=10, delay=86_400.0), count)


def _saturated(storage: Storage, path: Path, count: int) -> None:
    filling.saturated(storage, count)
    Cycler(storage).take_and_hold()


@dataclass(frozen=True)
class Situation:
    """What lies beside the tasks that are claimed.

    Attributes:
        name: for people.
        count: how many tasks there are of it.
        fill: puts them there.
        worker: makes the worker that claims, given the database.
        bound: how much more a task may cost than on an empty table; None only measures.
    """

    name: str
    count: int
    fill: Fill
    worker: Callable[[Storage], Cycler] = Cycler
    bound: float | None = BOUND


SITUATIONS = (
    Situation("pending tasks of another queue", 1_000_000, partial(_pending, NewTask("mine", queue="elsewhere"))),
    Situation("pending tasks of another capability", 1_000_000, partial(_pending, NewTask("mine", requires={"gpu": 1}))),
    Situation("pending tasks of a handler that it lacks", 1_000_000, partial(_pending, NewTask("theirs"))),
    Situation("future tasks of higher priority", 1_000_000, _future),
    Situation("tasks of one saturated key at the head", 200_000, _saturated),
    Situation("finished tasks", 5_000_000, lambda storage, path, count: filling.finished(storage, path, count)),
    Situation(
        "payloads of 100 KB, each task",
        0,
        _nothing,
        worker=lambda storage: Cycler(storage, tasks=[NewTask("mine", LARGE_PAYLOAD)]),
    ),
    Situation(
        "20 handlers in 3 queues: 60 lanes",
        0,
        _nothing,
        worker=lambda storage: Cycler(
            storage,
            tasks=[NewTask(handler, queue=queue) for handler in HANDLERS for queue in QUEUES],
            handlers=HANDLERS,
            queues=QUEUES,
        ),
        bound=None,
    ),
)


@dataclass(frozen=True)
class Measure:
    """Seconds per task, in the situation and on an empty table, and the median of their ratios by round."""

    beside: float
    empty: float
    ratio: float


def measure(situation: Situation, folder: Path, count: int, rounds: int, cycles: int) -> Measure:
    """Fill a database in `folder` with `count` tasks, and time rounds on it and on an empty one in turn."""
    path = folder / "beside.db"
    with closing(filling.created(path)) as beside, closing(filling.created(folder / "empty.db")) as empty:
        situation.fill(beside, path, count)
        pair = (situation.worker(beside), Cycler(empty))
        _round(pair, cycles)
        times = [_round(pair, cycles) for _ in range(rounds)]
    ours, base = zip(*times, strict=True)
    ratio = statistics.median(one / other for one, other in times)
    return Measure(statistics.median(ours), statistics.median(base), ratio)


def _round(pair: tuple[Cycler, Cycler], cycles: int) -> tuple[float, float]:
    for cycler in pair:
        cycler.supply(cycles)
    beside, empty = (cycler.run(cycles) for cycler in pair)
    return beside, empty


def compare(situations: Iterable[Situation], scale: float, rounds: int, cycles: int) -> list[str]:
    """Measure and print each situation; return the names of those above their bound."""
    above = []
    for situation in situations:
        count = int(situation.count * scale)
        with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
            found = measure(situation, Path(folder), count, rounds, cycles)
        failed = situation.bound is not None and found.ratio > situation.bound
        bound = "measured only" if situation.bound is None else f"bound {situation.bound}"
        what = f"{count:,} {situation.name}" if count else situation.name
        print(
            f"{what}: {1e6 * found.beside:.0f} us a task, empty {1e6 * found.empty:.0f} us (medians), "
            f"ratio {found.ratio:.2f} ({bound}{', ABOVE' if failed else ''})",
            flush=True,
        )
        above += [situation.name] if failed else []
    return above


def main() -> None:
    """Compare all situations, or those whose name contains a word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of tasks beside")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--only", default="", help="situations with this word in their name")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the tasks, few rounds")
    given = parser.parse_args()
    chosen = [situation for situation in SITUATIONS if given.only in situation.name]
    if given.quick:
        given.scale, given.rounds, given.cycles = QUICK_SCALE, 5, 20
    above = compare(chosen, given.scale, given.rounds, given.cycles)
    if above:
        raise SystemExit(f"above their bound: {'; '.join(above)}")


if __name__ == "__main__":
    main()
