"""Whether what is fast has stayed fast: ratios of processor time within one run, for the checks of every change.

Each figure is the processor time of one process with nobody beside it, over that of a raw loop, or of another command,
in the same rounds: what else the machine does takes part in both. The bounds are half as much again as what was
measured when they were set, so that noise does not reach them and a lost fast path does.

    python -m benchmarks.guard
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import floors, ours
from benchmarks.compare import Series, in_turns
from benchmarks.contestants import Enqueue
from benchmarks.measures import enqueue, layers, scaler
from benchmarks.processes import compile_fleet, folder, python, run
from fleet.config import locate
from fleet.domain.snapshot import PoolSettings
from fleet.wiring import open_storage

ROUNDS = 3
TASKS = 4_000
STRICT_TASKS = 800
ROWS = 20_000
SINGLES = 200
WORKERS, WAITING, LOOKS = 1_000, 100_000, 5
"""As many tasks for a worker as in a fleet of 10,000."""

Bounds = Mapping[tuple[str, str], float]

DEFAULT, STRICT, F1, F1S = "worker, default", "worker, --prefetch 1", "F1, one process", "F1s, one process"
MANY, ROW_BY_ROW, ONE, INSERT = "enqueue_many", "executemany", "enqueue", "INSERT"
BY_KIND, PLAIN = "a look by kind", "a look"
HELP, STATUS, IMPORTS = "fleet --help", "fleet status", "import sqlalchemy, typer"

BOUNDS: Bounds = {
    (DEFAULT, F1): 1.9,
    (STRICT, F1S): 4.8,
    (MANY, ROW_BY_ROW): 0.8,
    (ONE, INSERT): 3.0,
    (BY_KIND, PLAIN): 2.0,
    (HELP, IMPORTS): 0.9,
    (STATUS, IMPORTS): 1.5,
}
"""The most that one may take of another's time."""


def main() -> int:
    """Measure, print a line for each ratio, and return 1 when one is beyond its bound."""
    compile_fleet()
    found = in_turns(ROUNDS, _turns())
    times = {name: Series(tuple(values)) for name, values in found.items()}
    within = [told(times, *names, bound) for names, bound in BOUNDS.items()]
    return 0 if all(within) else 1


def told(times: Mapping[str, Series], name: str, other: str, bound: float) -> bool:
    """Print one ratio; return whether it is within its bound."""
    ratio = times[name].over(times[other])
    verdict = "ok" if ratio <= bound else "TOO SLOW"
    sys.stdout.write(f"{name} / {other}: {ratio:.2f} (<= {bound:g}): {verdict}\n")
    return ratio <= bound


def _turns() -> dict[str, Callable[[], float]]:
    return {
        DEFAULT: partial(_in_folder, partial(_worker, TASKS, None)),
        STRICT: partial(_in_folder, partial(_worker, STRICT_TASKS, 1)),
        F1: partial(_in_folder, partial(_bare, TASKS)),
        F1S: partial(_in_folder, partial(_schema, STRICT_TASKS)),
        MANY: partial(_in_folder, partial(enqueue.enqueue_many, rows=ROWS, measured=spent)),
        ROW_BY_ROW: partial(_in_folder, partial(enqueue.into_ours, json.dumps, rows=ROWS, measured=spent)),
        ONE: partial(_in_folder, partial(_singly, enqueue.fleet)),
        INSERT: partial(_in_folder, partial(_singly, enqueue.raw)),
        BY_KIND: partial(_in_folder, partial(_look, "drain_time", {})),
        PLAIN: partial(_in_folder, partial(_look, "fixed", {"target_workers": WORKERS})),
        HELP: partial(_command, "-m", "fleet", "--help"),
        STATUS: partial(_in_folder, _status),
        IMPORTS: partial(_command, "-c", "import sqlalchemy, typer"),
    }


def _in_folder(action: Callable[[Path], float]) -> float:
    with folder() as place:
        return action(place)


def spent(action: Callable[[], object]) -> float:
    """Return the seconds of processor time that an action takes in this process."""
    began = time.process_time()
    action()
    return time.process_time() - began


def _worker(tasks: int, prefetch: int | None, place: Path) -> float:
    database = place / "fleet.db"
    ours.created(database)
    ours.fill(database, tasks, 0.0)
    with layers.no_logs():
        seconds = spent(layers.worker(database, prefetch).live)
    ours.check(database, tasks)
    return seconds / tasks


def _bare(tasks: int, place: Path) -> float:
    floors.fill_bare(place / "bare.db", tasks)
    return _looped(place / "bare.db", floors.BARE, tasks)


def _schema(tasks: int, place: Path) -> float:
    ours.created(place / "fleet.db")
    ours.fill(place / "fleet.db", tasks, 0.0)
    return _looped(place / "fleet.db", floors.OURS, tasks)


def _looped(database: Path, statements: floors.Statements, tasks: int) -> float:
    done: list[int] = []
    seconds = spent(lambda: floors.loop(database, statements, 1, done.append))
    if len(done) != tasks:
        raise SystemExit(f"a raw loop did {len(done)} of {tasks} tasks")
    return seconds / tasks


def _singly(way: Callable[[Path], AbstractContextManager[Enqueue]], place: Path) -> float:
    with way(place) as add:
        add(0)
        return spent(lambda: [add(n) for n in range(SINGLES)])


def _look(policy: str, settings: Mapping[str, Any], place: Path) -> float:
    """Return what it takes to read what a pass of this policy is based on."""
    scaler.crowded(place / "fleet.db", WORKERS, WAITING)
    storage = open_storage(locate(str(place / "fleet.db")))
    asked = PoolSettings(policy, settings, 1)
    seconds = spent(
        lambda: [storage.control.snapshot("default", asked, "native:here", lambda _: False) for _ in range(LOOKS)]
    )
    storage.close()
    return seconds


def _command(*words: str) -> float:
    before = _children()
    run(python(*words))
    return _children() - before


def _status(place: Path) -> float:
    ours.created(place / "fleet.db")
    return _command("-m", "fleet", "status", "--db-path", str(place / "fleet.db"))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
