"""What a large fleet costs its database, its keepers and its scaler. Prints medians and ratios.

    pass         fleet-scaler with 10,000 workers and 1,000,000 waiting tasks, beside the same with one worker, and
                 beside `import sqlalchemy`: seconds beyond process start
    maintenance  one pass at that size: its length, and for how much of it the write lock is held
    beats        the share of time that 1,000 workers' heartbeats hold the write lock, metrics included
    start        commands, beside `python -c "import sqlalchemy, typer"`

Usage: large_fleet.py [pass] [maintenance] [beats] [start] [--runs N] [--workers N] [--tasks N]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowd import HEARTBEAT, LEASE, Crowd, metrics, shape

from fleet import maintenance, process
from fleet.config import locate
from fleet.domain.group import NewGroup
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.storage.database import Database
from fleet.storage.interfaces import Holder, Storage
from fleet.wiring import open_storage

PYTHON = sys.executable
INTERVAL = 10.0
"""Seconds between two beats of a worker."""


def seconds(command: Sequence[str]) -> float:
    """Return how long a command takes."""
    began = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def in_turns(measures: Mapping[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Return the median of each measure, taken in turns."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for measure in measures.values():
        measure()
    for _ in range(runs):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def scaler_passes(folder: Path, crowd: Crowd, runs: int) -> dict[str, float]:
    """Return the seconds of a pass on a large and on a small database, and of the import of SQLAlchemy."""
    sizes = {
        "small": Crowd(1, 1, 0),
        "large": crowd,
        "large, local": Crowd(crowd.workers, crowd.groups, crowd.tasks, True),
    }
    commands = {}
    for name, size in sizes.items():
        path = folder / f"{name}.db"
        size.build(path)
        print(f"{name}: {shape(path)}", flush=True)
        commands[name] = [PYTHON, "-m", "fleet.cli.scaler", "--db-path", str(path)]
    commands["import sqlalchemy"] = [PYTHON, "-c", "import sqlalchemy"]

    def take(name: str) -> float:
        if name in sizes:
            let_maintenance_be_due(folder / f"{name}.db")
        return seconds(commands[name])

    return in_turns({name: lambda name=name: take(name) for name in commands}, runs)


def let_maintenance_be_due(path: Path) -> None:
    """Write that the last pass was six seconds ago: nobody has watched in between, and it is no gap yet."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE maintenance SET last_pass_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-6 seconds')")
    connection.close()


@dataclass
class Held:
    """For how long each transaction held the write lock, in seconds: from its begin to its commit."""

    spans: list[float] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Any:
        """Measure every write transaction of this process."""
        once = Database._once

        def measured(database: Database, *arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return once(database, *arguments)
            finally:
                self.spans.append(time.perf_counter() - began)

        Database._once = measured  # type: ignore[method-assign]
        try:
            yield self
        finally:
            Database._once = once  # type: ignore[method-assign]


def maintenance_pass(path: Path) -> tuple[float, Held]:
    """Return how long a pass on a database takes, and for how long it held the write lock."""
    let_maintenance_be_due(path)
    own = process.identify()
    storage = open_storage(locate(str(path)))
    with Held().watching() as held:
        began = time.perf_counter()
        report = maintenance.run_pass(storage, Holder("bench", own))
        length = time.perf_counter() - began
    storage.close()
    if report is None or report.errors:
        raise SystemExit(f"error: the pass did not run: {report}")
    return length, held


@dataclass
class Flock:
    """Registered workers in groups of one size, and what their keepers do at each beat."""

    storage: Storage
    groups: int
    size: int

    @classmethod
    def registered(cls, path: Path, groups: int, size: int) -> Flock:
        """Register them."""
        storage = open_storage(locate(str(path)), create=True)
        own = process.identify()
        for group in range(groups):
            storage.control.add_group(NewGroup(f"g{group}", "default", size, f"t{group}", own, LEASE, {}))
            for number in range(size):
                storage.registry.register(
                    WorkerRegistration(
                        worker_id=f"g{group}-{number}",
                        incarnation=f"life-{group}-{number}",
                        pool="default",
                        process=own,
                        heartbeat_seconds=HEARTBEAT,
                        lease_seconds=LEASE,
                        group_id=f"g{group}",
                        handlers=("fleet.noop",),
                    ),
                    lambda _: False,
                )
        return cls(storage, groups, size)

    def beat(self, group: int) -> None:
        """Do what the keeper of a group does at a beat."""
        told = metrics()
        self.storage.registry.beat(
            [
                Beat(f"g{group}-{number}", f"life-{group}-{number}", tasks_done=number, metadata=told)
                for number in range(self.size)
            ]
        )
        self.storage.orders.take([f"life-{group}-{number}" for number in range(self.size)], "bench")
        self.storage.control.beat_group(f"g{group}", process.identify())


def beats(path: Path, groups: int, size: int, rounds: int) -> tuple[float, float]:
    """Return the share of time for which so many workers' beats hold the write lock, and milliseconds of one beat."""
    flock = Flock.registered(path, groups, size)
    spent = []
    for number in range(rounds + groups):
        with Held().watching() as held:
            flock.beat(number % groups)
        if number >= groups:
            spent.append(sum(held.spans))
    flock.storage.close()
    one = statistics.median(spent)
    return one * groups / INTERVAL, one * 1000


def starts(path: Path, runs: int) -> dict[str, float]:
    """Return the seconds of commands on a small database, and of what they are compared with."""
    Crowd(1, 1, 4).build(path)
    database = ["--db-path", str(path)]
    commands = {
        'python -c "import sqlalchemy, typer"': ["-c", "import sqlalchemy, typer"],
        "fleet --help": ["-m", "fleet", "--help"],
        "fleet status": ["-m", "fleet", "status", *database],
        "fleet enqueue": ["-m", "fleet", "enqueue", "fleet.noop", *database],
        "fleet-scaler, nothing to do": ["-m", "fleet.cli.scaler", *database],
        "fleet-scaler --help": ["-m", "fleet.cli.scaler", "--help"],
        "fleet-worker --help": ["-m", "fleet.cli.worker", "--help"],
    }
    return in_turns({name: lambda words=words: seconds([PYTHON, *words]) for name, words in commands.items()}, runs)


def print_pass(folder: Path, crowd: Crowd, runs: int) -> None:
    """Print what a scaler pass takes."""
    found = scaler_passes(folder, crowd, runs)
    base = found["import sqlalchemy"]
    for name, value in found.items():
        print(
            f"{name:18} {value:.3f} s, {value / base:.2f} times import sqlalchemy, {value - base:+.3f} s beyond it, "
            f"{value - found['small']:+.3f} s beyond a pass on a small database"
        )


def print_maintenance(folder: Path, crowd: Crowd, runs: int) -> None:
    """Print what a maintenance pass takes."""
    path = folder / "maintained.db"
    crowd.build(path)
    # The first passes write everybody's health, a part at a time.
    taken = [maintenance_pass(path) for _ in range(runs + 6)][6:]
    length = statistics.median(length for length, _ in taken)
    locked = statistics.median(sum(held.spans) for _, held in taken)
    longest = max(max(held.spans) for _, held in taken)
    print(
        f"maintenance pass   {length:.3f} s, {locked * 1000:.1f} ms of it with the write lock ({locked / length:.1%}), "
        f"at most {longest * 1000:.1f} ms at a time"
    )


def print_beats(folder: Path, runs: int) -> None:
    """Print what heartbeats take."""
    for groups, size in ((10, 100), (1_000, 1)):
        rounds = max(runs * 20, groups // 5)
        share, one = beats(folder / f"beats-{groups}.db", groups, size, rounds)
        print(
            f"{groups} groups of {size:3}    {share:.2%} of the time under the write lock, {one:.2f} ms a beat "
            f"({groups * size} workers, each every {INTERVAL:.0f} s)"
        )


def print_starts(folder: Path, runs: int) -> None:
    """Print what commands take to start."""
    found = starts(folder / "start.db", runs)
    base = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:38} {value:.3f} s, ratio {value / base:.2f}")


def main() -> None:
    """Measure what is asked for; without a word, all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["pass", "maintenance", "beats", "start", []])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    given = parser.parse_args()
    crowd = Crowd(given.workers, given.groups, given.tasks)
    wanted = given.what or ["pass", "maintenance", "beats", "start"]
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        folder = Path(name)
        prints: Mapping[str, Callable[[], None]] = {
            "pass": lambda: print_pass(folder, crowd, given.runs),
            "maintenance": lambda: print_maintenance(folder, crowd, given.runs),
            "beats": lambda: print_beats(folder, given.runs),
            "start": lambda: print_starts(folder, given.runs),
        }
        for word in wanted:
            prints[word]()


if __name__ == "__main__":
    main()
