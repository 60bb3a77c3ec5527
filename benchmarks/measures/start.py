"""How soon many workers are ready, and what memory is their own.

A worker is ready when it has begun a task; each begins one that lasts until all have. The time runs from the start of
the command. The other side imports the same modules in as many separate interpreters, as many at a time as there are
CPUs, and all at once; the faster of the two counts.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import psutil

from benchmarks import ours
from benchmarks.compare import Series, in_turns
from benchmarks.outcome import Check, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import PATIENCE, Invalid, environment, folder, python, running, wait_for
from benchmarks.processes import run as run_command
from benchmarks.scale import Scale

MIB = 1_048_576
FLEET, SEPARATE = "Fleet", "separate interpreters"
READY = """
SELECT count(*), max(q.claimed_at) FROM work_queue q JOIN worker_registry w
ON w.worker_id = q.worker AND w.incarnation = q.incarnation
WHERE q.status = 'running' AND w.status = 'active'
"""
IMPORTS = """
import os, sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
os._exit(0)
"""
IMPORTABLE = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    try:
        import_module(name)
    except ImportError:
        continue
    print(name)
"""
NOTE = (
    "Seconds from the start of the command until every worker has begun a task, and the private memory (USS) of a "
    "worker with that task in hand. Separate interpreters only import the modules that a worker has loaded. Medians of "
    "{runs} rounds."
)


@dataclass(frozen=True)
class Started:
    """How a start went.

    Attributes:
        seconds: until all were ready.
        private: MiB of each worker; empty where it was not measured.
    """

    seconds: float
    private: tuple[float, ...] = ()


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure Fleet, huey's consumer and separate interpreters."""
    modules = loaded()
    turns: dict[tuple[int, str], Callable[[], Started]] = {}
    for workers in scale.starts:
        turns[workers, FLEET] = partial(fleet, workers)
        turns[workers, SEPARATE] = partial(separate, workers, modules)
        if any(peer.package == "huey" for peer in peers):
            turns[workers, "huey"] = partial(huey, workers)
    found = in_turns(scale.few, turns)
    times = {key: Series(tuple(one.seconds for one in each)) for key, each in found.items()}
    rows = tuple(
        (str(workers), name, number(times[workers, name].median), span(times[workers, name]), *_memory(each))
        for (workers, name), each in found.items()
    )
    columns = ("workers", "who", "seconds", "min–max", "MiB each, median", "MiB, largest")
    note = NOTE.format(runs=scale.few)
    return Outcome((Table("Starting workers", columns, rows, note),), _checks(max(scale.starts), times, found))


def _checks(
    workers: int, times: dict[tuple[int, str], Series], found: dict[tuple[int, str], list[Started]]
) -> tuple[Check, ...]:
    largest = max(mib for one in found[workers, FLEET] for mib in one.private)
    ratio = times[workers, SEPARATE].over(times[workers, FLEET])
    what = f"private memory of the largest of {workers} workers"
    return (
        Check(4, f"{workers} workers ready: as many separate interpreters take", ratio, 15.0),
        Check(4, what, largest, 8.0, at_least=False, unit=" MiB"),
    )


def _memory(each: Sequence[Started]) -> tuple[str, str]:
    private = Series(tuple(mib for one in each for mib in one.private) or (0.0,))
    return (number(private.median), number(private.highest)) if private.highest else ("", "")


def private_mib(pids: Sequence[int]) -> tuple[float, ...]:
    """Return the memory that would be free if each of these processes ended."""
    return tuple(psutil.Process(pid).memory_full_info().uss / MIB for pid in pids)


def fleet(workers: int) -> Started:
    """Start a worker group, and end it."""
    with folder() as place:
        database, gate = place / "fleet.db", place / "gate"
        enqueue = ["enqueue", "stay", "--payload", f'{{"gate": "{gate}"}}', "--count", str(workers)]
        run_command(python("-m", "fleet", *enqueue, "--db-path", str(database)))
        began = time.time()
        with running(ours.worker_group(database, "--processes", str(workers))):
            ready = _ready(database, workers)
            with closing(sqlite3.connect(database, timeout=60)) as connection:
                pids = [pid for (pid,) in connection.execute("SELECT pid FROM worker_registry WHERE status = 'active'")]
            private = private_mib(pids)
            gate.touch()
        return Started(ready - began, private)


def _ready(database: Path, workers: int) -> float:
    """Return when the last worker claimed its task, in seconds of the epoch."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        wait_for(lambda: connection.execute(READY).fetchone()[0] == workers, f"{workers} workers", pause=0.05)
        return datetime.fromisoformat(connection.execute(READY).fetchone()[1]).timestamp()


def huey(workers: int) -> Started:
    """Start huey's consumer with worker processes, and end it."""
    from benchmarks.peers import huey as peer

    with folder() as place, peer.opened(place, "unsynced") as queue:
        for number_of_task in range(workers):
            queue.stay(number_of_task, str(place / "gate"))
        began = time.monotonic_ns()
        with peer.consumer(place, workers, "normal"):
            wait_for(lambda: len(peer.performed(place)) == workers, f"{workers} workers of huey", pause=0.05)
            last = max(one.times[0] for one in peer.performed(place))
            private = private_mib([int(path.name) for path in (place / "marks").iterdir()])
            (place / "gate").touch()
        return Started((last - began) / 1e9, private)


def loaded() -> list[str]:
    """Return the modules that a worker has loaded, as far as another process can import them by name."""
    with folder() as place:
        database, found = place / "fleet.db", place / "modules"
        task = ["modules", "--payload", json.dumps({"into": str(found)}), "--db-path", str(database)]
        run_command(python("-m", "fleet", "enqueue", *task))
        with running(ours.worker_group(database, "--processes", "4", "--until-empty")) as group:
            group.wait(PATIENCE)
        names = found.read_text().split()
    return run_command(python("-c", IMPORTABLE, *names)).split()


def separate(workers: int, modules: Sequence[str]) -> Started:
    """Import the modules in as many separate interpreters, in the faster of two ways."""
    ways = {os.cpu_count() or 1, workers}
    return Started(min(_imported(workers, at_a_time, modules) for at_a_time in ways if at_a_time <= max(workers, 1)))


def _imported(processes: int, at_a_time: int, modules: Sequence[str]) -> float:
    began = time.monotonic()
    waiting: list[subprocess.Popen[bytes]] = []
    for _ in range(processes):
        if len(waiting) == at_a_time:
            _ended(waiting.pop(0))
        waiting.append(subprocess.Popen(python("-c", IMPORTS, *modules), env=environment()))
    for process in waiting:
        _ended(process)
    return time.monotonic() - began


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.wait(PATIENCE):
        raise Invalid("a process could not import the modules")
