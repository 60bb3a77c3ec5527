"""PgQueuer: `PgQueuer.run` with asyncpg and uvloop, as its command runs it.

A worker process takes `batch_size` jobs by one statement, starts a coroutine for each, and writes the ends of as many
together, at the latest after 0.1 seconds. Coroutines only. A job that is done is deleted, and a row of its log says so.
Batches of 10 over one connection are its defaults. Of batches of 50, 100, 250, 500 and 1,000, over one connection, a
pool, and psycopg, those of 500 over a pool were as fast as any.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver, Driver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.contestants import Enqueue, Run
from benchmarks.crew import Performed, once_each, processes
from benchmarks.idle_fleet import SETTLING, Idle, stamps
from benchmarks.postgresql.contestants import Bulk, timed
from benchmarks.postgresql.server import analyse, seconds, value
from benchmarks.processes import Invalid, python, running, wait_for
from benchmarks.tasks import mark

DONE = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
SPAN = """SELECT min(created) FILTER (WHERE status = 'picked'), max(created) FILTER (WHERE status = 'successful')
FROM pgqueuer_log"""
LEFT = "SELECT count(*) FROM pgqueuer"
NAME = "bench"
LISTENING = f"SELECT count(DISTINCT client_port) FROM pg_stat_activity WHERE application_name = '{NAME}'"
MODULE = "benchmarks.postgresql.pgqueuer"


@asynccontextmanager
async def connected(url: str, pooled: bool) -> AsyncIterator[Driver]:
    """Give its driver: over one connection, or over a pool of as many as its command makes."""
    named = {"application_name": NAME}
    if pooled:
        async with asyncpg.create_pool(url, min_size=1, max_size=5, server_settings=named) as pool:
            yield AsyncpgPoolDriver(pool)
        return
    connection = await asyncpg.connect(url, server_settings=named)
    try:
        yield AsyncpgDriver(connection)
    finally:
        await connection.close()


async def working(url: str, batch: int, pooled: bool, handler: Callable[[int], object], wait: bool) -> None:
    """Work until there is nothing left, or for ever."""
    async with connected(url, pooled) as driver:
        queuer = PgQueuer(driver)

        @queuer.entrypoint("work")
        async def work(job: Job) -> None:
            handler(int(job.payload or b"0"))

        mode = QueueExecutionMode.continuous if wait else QueueExecutionMode.drain
        await queuer.run(batch_size=batch, mode=mode)


@contextmanager
def opened(url: str) -> Iterator[tuple[Enqueue, Bulk]]:
    """Give what enqueues jobs in an empty database."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connection = runner.run(asyncpg.connect(url))
        queries = Queries(AsyncpgDriver(connection))
        runner.run(queries.install())

        def many(tasks: int) -> None:
            payloads: list[bytes | None] = [b"%d" % number for number in range(tasks)]
            runner.run(queries.enqueue(["work"] * tasks, payloads, [0] * tasks))

        yield lambda number: runner.run(queries.enqueue("work", b"%d" % number)), many
        runner.run(connection.close())


class Pgqueuer:
    """Its worker.

    Args:
        name: how the tables call it.
        batch: jobs that one statement takes.
        pooled: whether over a pool of connections.
        share: its part of the tasks.
    """

    package = "pgqueuer"

    def __init__(self, name: str, batch: int, pooled: bool, share: float) -> None:
        self.name = name
        how = "asyncpg, a pool of up to 5" if pooled else "asyncpg, one connection"
        self.settings = f"N processes: PgQueuer.run(batch_size={batch}), {how}, uvloop; coroutines; no results"
        self.share = share
        self._batch = batch
        self._pooled = pooled

    def run(self, url: str, tasks: int, workers: int) -> Run:
        """Do the tasks."""
        with opened(url) as (_, many):
            many(tasks)
        analyse(url)

        def loop(_: int, perform: Performed) -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(working(url, self._batch, self._pooled, perform, wait=False))

        performed = processes(loop, workers, 0.0)
        once_each(performed, tasks)
        done, left = value(url, DONE), value(url, LEFT)
        if done != tasks or left:
            raise Invalid(f"{done} of {tasks} jobs succeeded, {left} are left")
        return timed(performed, seconds(url, SPAN))

    @contextmanager
    def enqueuer(self, url: str) -> Iterator[tuple[Enqueue, Bulk]]:
        """Give what enqueues jobs."""
        with opened(url) as both:
            yield both

    @contextmanager
    def idle(self, url: str, workers: int, place: Path) -> Iterator[Idle]:
        """Give idle workers."""
        with opened(url) as (one, _), ExitStack() as stack:
            command = python("-m", MODULE, url, os.fspath(place), str(self._batch), str(int(self._pooled)))
            pids = [stack.enter_context(running(command)).pid for _ in range(workers)]

            def enqueue(numbers: list[int]) -> None:
                for number in numbers:
                    one(number)

            wait_for(lambda: value(url, LISTENING) >= workers, f"{workers} workers")
            enqueue(list(range(-workers, 0)))
            wait_for(lambda: len(stamps(place)) == workers, "the first jobs")
            time.sleep(SETTLING)
            yield Idle(pids[0], enqueue, lambda: stamps(place))


WAYS = (Pgqueuer("pgqueuer", 10, False, 0.25), Pgqueuer("pgqueuer, batches of 500", 500, True, 1.0))


if __name__ == "__main__":
    address, marks, several, pool = sys.argv[1:]
    uvloop.run(working(address, int(several), pool == "1", lambda number: mark(number, marks), wait=True))
