"""procrastinate: `App.run_worker_async` with the psycopg connector, as its documentation shows it.

A worker process fetches one job after another and does up to `concurrency` of them at a time in one event loop; a job
is finished by a statement of its own. Its pool has as many connections as that. Handlers are coroutines, or functions
that it runs in threads. No results are stored; jobs stay in their table, as by default.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.contestants import Enqueue, Run
from benchmarks.crew import Performed, once_each, processes
from benchmarks.idle_fleet import SETTLING, Idle, stamps
from benchmarks.postgresql.contestants import Bulk, timed
from benchmarks.postgresql.server import analyse, seconds, value
from benchmarks.processes import Invalid, python, running, wait_for
from benchmarks.tasks import mark

DONE = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
SPAN = """SELECT min(at) FILTER (WHERE type = 'started'), max(at) FILTER (WHERE type = 'succeeded')
FROM procrastinate_events"""
MODULE = "benchmarks.postgresql.procrastinate"


def application(url: str, concurrency: int, handler: Callable[[int], Any], asynchronous: bool) -> App:
    """Return an application with one task."""
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=max(2, concurrency)))
    if asynchronous:

        async def work(number: int) -> None:
            handler(number)

        app.task(work, name="work")
    else:
        app.task(handler, name="work")
    return app


async def working(app: App, concurrency: int, wait: bool) -> None:
    """Work until there is nothing left, or for ever."""
    async with app.open_async():
        await app.run_worker_async(concurrency=concurrency, wait=wait, install_signal_handlers=wait)


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """Give the task of an application that enqueues, in an empty database."""
    app = App(connector=SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1))
    task = app.task(lambda number: None, name="work")
    with app.open():
        app.schema_manager.apply_schema()
        yield task


class Procrastinate:
    """Its worker.

    Args:
        name: how the tables call it.
        concurrency: jobs at a time in each process.
        asynchronous: whether handlers are coroutines.
        share: its part of the tasks.
    """

    package = "procrastinate"

    def __init__(self, name: str, concurrency: int, asynchronous: bool, share: float) -> None:
        self.name = name
        kind = "coroutines" if asynchronous else "functions, in its threads"
        self.settings = f"N processes: run_worker_async(concurrency={concurrency}), psycopg; {kind}; no results"
        self.share = share
        self._concurrency = concurrency
        self._asynchronous = asynchronous

    def run(self, url: str, tasks: int, workers: int) -> Run:
        """Do the tasks."""
        with opened(url) as task:
            for first in range(0, tasks, 1000):
                task.batch_defer(*({"number": number} for number in range(first, min(tasks, first + 1000))))
        analyse(url)

        def loop(_: int, perform: Performed) -> None:
            app = application(url, self._concurrency, perform, self._asynchronous)
            asyncio.run(working(app, self._concurrency, wait=False))

        performed = processes(loop, workers, 0.0)
        once_each(performed, tasks)
        if (done := value(url, DONE)) != tasks:
            raise Invalid(f"{done} of {tasks} jobs succeeded")
        return timed(performed, seconds(url, SPAN))

    @contextmanager
    def enqueuer(self, url: str) -> Iterator[tuple[Enqueue, Bulk]]:
        """Give what enqueues jobs."""
        with opened(url) as task:
            yield (
                lambda number: task.defer(number=number),
                lambda tasks: task.batch_defer(*({"number": number} for number in range(tasks))),
            )

    @contextmanager
    def idle(self, url: str, workers: int, place: Path) -> Iterator[Idle]:
        """Give idle workers."""
        with opened(url) as task, ExitStack() as stack:
            command = python("-m", MODULE, url, os.fspath(place), str(self._concurrency))
            pids = [stack.enter_context(running(command)).pid for _ in range(workers)]

            def enqueue(numbers: list[int]) -> None:
                for number in numbers:
                    task.defer(number=number)

            listening = "SELECT count(*) FROM procrastinate_workers"
            wait_for(lambda: value(url, listening) == workers, f"{workers} workers")
            enqueue(list(range(-workers, 0)))
            wait_for(lambda: len(stamps(place)) == workers, "the first jobs")
            time.sleep(SETTLING)
            yield Idle(pids[0], enqueue, lambda: stamps(place))


WAYS = (
    Procrastinate("procrastinate", 10, True, 0.025),
    Procrastinate("procrastinate, functions", 10, False, 0.025),
)


if __name__ == "__main__":
    address, marks, several = sys.argv[1:]
    asyncio.run(working(application(address, int(several), lambda n: mark(n, marks), True), int(several), wait=True))
