"""Fleet as a contestant: its own command lines, as a user starts them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from benchmarks.contestants import Run, file_bytes
from benchmarks.processes import PATIENCE, Invalid, python, running, wait_for
from benchmarks.processes import run as run_command

DONE = """
SELECT count(*), coalesce(sum(attempt), 0), count(result_json), min(started_at), max(started_at)
FROM work_queue WHERE status = 'done'
"""
FIRST_HALF = """
SELECT worker, count(*) FROM (
    SELECT worker FROM work_queue WHERE status = 'done' ORDER BY started_at, id LIMIT :half
) GROUP BY worker
"""


def created(database: Path) -> int:
    """Make an empty database, and return its size in bytes."""
    run_command(python("-m", "fleet", "init", "--db-path", str(database)))
    return file_bytes(database)


def fill(database: Path, tasks: int, seconds: float) -> None:
    """Enqueue so many tasks that take so long."""
    what = ["pause", "--payload", json.dumps({"seconds": seconds})] if seconds else ["work"]
    run_command(python("-m", "fleet", "enqueue", *what, "--count", str(tasks), "--json", "--db-path", str(database)))


def worker_group(database: Path, *options: str, module: str = "fleet.cli.worker") -> list[str]:
    """Return the command of a worker group that knows the benchmarks' tasks."""
    return python("-m", module, "--db-path", str(database), "--tasks", "benchmarks.tasks", *options)


def check(database: Path, tasks: int) -> float:
    """Return tasks per second, from the start of the first execution to that of the last, as for everybody.

    Raises:
        Invalid: a task was not done, was done twice, or has no result.
    """
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        done, attempts, results, first, last = connection.execute(DONE).fetchone()
    if not done == attempts == results == tasks:
        raise Invalid(f"{done} of {tasks} tasks done in {attempts} attempts with {results} results")
    # Starts are stored by milliseconds: a handful of tasks may all have begun within one.
    return tasks / max(0.001, (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds())


def shares(database: Path, tasks: int, workers: int) -> tuple[int, ...]:
    """Return how many of the first half of the tasks each worker did."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        found = [count for _, count in connection.execute(FIRST_HALF, {"half": max(1, tasks // 2)})]
    return (*found, *(0 for _ in range(workers - len(found))))


class Ours:
    """Fleet's worker group.

    Args:
        name: how the tables call it.
        prefetch: `auto`, or how many tasks a claim brings.
        share: its part of the tasks.
    """

    def __init__(self, name: str, prefetch: str, share: float) -> None:
        self.name = name
        self.settings = f"WAL, synchronous=NORMAL; fleet-worker --processes N --prefetch {prefetch}; result stored"
        self.share = share
        self._prefetch = prefetch

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = folder / "fleet.db"
        empty = created(database)
        fill(database, tasks, seconds)
        options = ["--processes", str(workers), "--prefetch", self._prefetch, "--until-empty"]
        with running(worker_group(database, *options)) as group:
            group.wait(PATIENCE)
        rate = check(database, tasks)
        return Run(rate, shares(database, tasks, workers), (file_bytes(database) - empty) / tasks)


DEFAULT = Ours("Fleet", "auto", 1.0)
STRICT = Ours("Fleet --prefetch 1", "1", 0.25)


def ready(database: Path, workers: int) -> None:
    """Wait until so many workers are registered and idle."""
    statement = "SELECT count(*) FROM worker_registry WHERE status = 'active' AND idle_since IS NOT NULL"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        wait_for(lambda: connection.execute(statement).fetchone()[0] == workers, f"{workers} idle workers")
