"""Fleet on PostgreSQL, by its own commands.

Its workers commit claims, beats and results without waiting for the disk, unless the database says that they are to;
what is enqueued waits for it, always. So all are compared at equal durability both ways, by the database's setting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from benchmarks.contestants import Enqueue, Run
from benchmarks.idle_fleet import SETTLING, Idle, stamps
from benchmarks.ours import DONE, worker_group
from benchmarks.postgresql.contestants import Bulk
from benchmarks.postgresql.server import analyse, seconds, value
from benchmarks.processes import Invalid, python, running, wait_for
from benchmarks.processes import run as run_command
from fleet import Fleet

REGISTERED = "SELECT count(*) FROM worker_registry WHERE status = 'active'"
READY = "SELECT count(*) FROM worker_registry WHERE status = 'active' AND idle_since IS NOT NULL"
LEFT = "SELECT CAST(EXISTS (SELECT 1 FROM work_queue WHERE status IN ('pending', 'running')) AS int)"
SPAN = "SELECT min(claimed_at), max(finished_at) FROM work_queue"
FIRST_HALF = """
SELECT worker, count(*) FROM (
    SELECT worker FROM work_queue WHERE status = 'done' ORDER BY started_at, id LIMIT %(half)s
) AS first GROUP BY worker
"""


def ours(url: str) -> str:
    """Return a URL in Fleet's form."""
    return make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def group(url: str, *options: str) -> list[str]:
    """Return the command of a worker group."""
    return worker_group(ours(url), *options)  # type: ignore[arg-type]


class Ours:
    """Fleet's worker group.

    Args:
        name: how the tables call it.
        prefetch: `auto`, or how many tasks a claim brings.
        share: its part of the tasks.
    """

    package = "sqlfleet"

    def __init__(self, name: str, prefetch: str, share: float) -> None:
        self.name = name
        self.settings = f"fleet-worker --processes N --prefetch {prefetch}; result stored"
        self.share = share
        self._prefetch = prefetch

    def run(self, url: str, tasks: int, workers: int) -> Run:
        """Do the tasks; the queue is paused until all workers are there, so that they begin together."""
        self._fill(url, tasks)
        run_command(python("-m", "fleet", "pause", "default", "--db-path", ours(url)))
        options = ["--processes", str(workers), "--prefetch", self._prefetch]
        with running(group(url, *options)):
            wait_for(lambda: value(url, REGISTERED) == workers, f"{workers} workers")
            run_command(python("-m", "fleet", "resume", "default", "--db-path", ours(url)))
            wait_for(lambda: not value(url, LEFT), "the end of all tasks", pause=0.2)
        with psycopg.connect(url) as connection:
            row = connection.execute(DONE.encode()).fetchone()
            shares = [int(row[1]) for row in connection.execute(FIRST_HALF.encode(), {"half": max(1, tasks // 2)})]
        assert row is not None
        done, attempts, results, *_ = row
        if not done == attempts == results == tasks:
            raise Invalid(f"{done} of {tasks} tasks done in {attempts} attempts with {results} results")
        rate = tasks / seconds(url, SPAN)
        return Run(rate, (*shares, *(0 for _ in range(workers - len(shares)))), 0.0)

    def _fill(self, url: str, tasks: int) -> None:
        run_command(python("-m", "fleet", "init", "--db-path", ours(url)))
        run_command(python("-m", "fleet", "enqueue", "work", "--count", str(tasks), "--json", "--db-path", ours(url)))
        analyse(url)

    @contextmanager
    def enqueuer(self, url: str) -> Iterator[tuple[Enqueue, Bulk]]:
        """Give what enqueues tasks; each call is a durable transaction."""
        run_command(python("-m", "fleet", "init", "--db-path", ours(url)))
        app = Fleet(ours(url))
        yield lambda number: app.enqueue("work", {"n": number}), lambda tasks: app.enqueue_many("work", _numbers(tasks))
        app.close()

    @contextmanager
    def idle(self, url: str, workers: int, place: Path) -> Iterator[Idle]:
        """Give idle workers."""
        run_command(python("-m", "fleet", "init", "--db-path", ours(url)))
        app = Fleet(ours(url))

        def enqueue(numbers: list[int]) -> None:
            for number in numbers:
                app.enqueue("stamp", {"number": number, "folder": os.fspath(place)})

        with running(group(url, "--processes", str(workers))) as started:
            wait_for(lambda: value(url, READY) == workers, f"{workers} idle workers")
            enqueue(list(range(-workers, 0)))
            wait_for(lambda: len(stamps(place)) == workers, "the first tasks")
            time.sleep(SETTLING)
            yield Idle(started.pid, enqueue, lambda: stamps(place))
        app.close()


def _numbers(tasks: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(tasks)]


DEFAULT = Ours("Fleet", "auto", 1.0)
STRICT = Ours("Fleet --prefetch 1", "1", 0.05)
