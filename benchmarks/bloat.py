"""`python -m benchmarks.bloat`: many tasks go through a small window on PostgreSQL; what do its tables become?

No workers: storage calls in bulk, as keepers and workers make them. The server's autovacuum runs with its defaults.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from fleet.config import DATABASE_VARIABLE, locate
from fleet.domain.execution import Claimant, ClaimedTask, done
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

BATCH = 100
SAMPLES = 10
_SIZES = """SELECT pg_table_size('work_queue'), pg_indexes_size('work_queue'), pg_relation_size('ix_work_queue_claim'),
    pg_total_relation_size('worker_registry'), s.n_dead_tup, s.autovacuum_count
FROM pg_stat_user_tables s WHERE s.relname = 'work_queue'"""
_PAGES = """SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
FROM pg_statio_user_tables WHERE relname = 'work_queue'"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The tables at one moment; sizes in bytes.

    Attributes:
        tasks: how many have come to their end.
        table: the table of tasks.
        indexes: its indexes.
        claim_index: the one that claims go through.
        registry: the table of workers, with its indexes.
        dead: dead rows among the tasks, as the server counts them.
        vacuums: how often autovacuum has been there.
        claim_ms: the median time of a claim of one task, in milliseconds.
        claim_pages: the median number of pages that it touches.
    """

    tasks: int
    table: int
    indexes: int
    claim_index: int
    registry: int
    dead: int
    vacuums: int
    claim_ms: float
    claim_pages: float


class Stream:
    """One worker that executes nothing, and everything that goes with it.

    Args:
        url: a PostgreSQL database, which is made.
        window: how many tasks wait at any time.
        is_held: whether a stranger keeps a transaction open from the beginning on.
    """

    def __init__(self, url: str, window: int, is_held: bool, resources: ExitStack) -> None:
        self._step = min(1_000, window // 2)
        self.store: Storage = resources.enter_context(
            closing(open_storage(locate(None, {DATABASE_VARIABLE: url}), create=True))
        )
        address = url.replace("+psycopg", "")
        self._stranger = resources.enter_context(psycopg.connect(address, autocommit=True))
        self._register()
        self._add(window)
        if is_held:
            holder = resources.enter_context(psycopg.connect(address, application_name="forgotten"))
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM work_queue")

    def _register(self) -> None:
        process = ProcessIdentity("bench", "bench", "pid:[1]", 1, 1)
        registration = WorkerRegistration("w", "life", "default", process, 5.0, 3600.0, handlers=("t",))
        self.store.registry.register(registration, lambda _: False)
        self._who = Claimant("w", "life", 3600.0)

    def _add(self, count: int) -> None:
        for at in range(0, count, 1_000):
            self.store.queue.enqueue([NewTask("t", '{"x":1}')] * min(count - at, 1_000))
        self._lanes = tuple((lane.lane_id, 0, 0) for lane in self.store.queue.lanes())

    def run(self, tasks: int) -> Iterator[Sample]:
        """Put so many tasks through; yield a sample at the beginning, and after each tenth."""
        ended = kept = 0
        yield self._sample(0)
        held: tuple[ClaimedTask, ...] = ()
        for part in range(1, SAMPLES + 1):
            while ended < tasks * part // SAMPLES:
                finishes = [done(task, "1", 0.0, 0.0) for task in held]
                held = self.store.queue.finish_and_claim(self._who, finishes, self._lanes, BATCH).tasks
                ended += len(finishes)
                if ended >= kept + self._step:
                    self._keep()
                    kept += self._step
            self.store.queue.release("life", [task.fence for task in held], interrupted=False, reason="sampled")
            held = ()
            yield self._sample(ended)

    def _keep(self) -> None:
        """Do what goes on beside: new tasks come, ended ones are pruned, workers beat."""
        self._add(self._step)
        for _ in range(2):
            self.store.queue.prune(0.0, self._step)
        self.store.registry.beat([Beat("w", "life")])

    def _sample(self, ended: int) -> Sample:
        times, pages = [], []
        for _ in range(21):
            before = self._pages()
            began = time.perf_counter()
            [task] = self.store.queue.claim(self._who, self._lanes, 1).tasks
            times.append((time.perf_counter() - began) * 1e3)
            pages.append(self._pages() - before)
            self.store.queue.release("life", [task.fence], interrupted=False, reason="sampled")
        [found] = self._stranger.execute(_SIZES).fetchall()
        return Sample(ended, *map(int, found), statistics.median(times), statistics.median(pages))

    def _pages(self) -> int:
        with self.store.transaction() as transaction:
            transaction.connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        [(pages,)] = self._stranger.execute(_PAGES).fetchall()
        return int(pages)


def samples(url: str, tasks: int, window: int, is_held: bool = False) -> Iterator[Sample]:
    """Put tasks through a window in a new database; yield what its tables become.

    Args:
        url: an empty PostgreSQL database.
        tasks: how many.
        window: how many wait at any time.
        is_held: whether a stranger keeps a transaction open meanwhile.
    """
    with ExitStack() as resources:
        yield from Stream(url, window, is_held, resources).run(tasks)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line names, on a server that it starts; print a line for each sample."""
    from tests.postgres import start_server

    parser = argparse.ArgumentParser(prog="scripts/postgresql-bloat", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=10_000)
    parser.add_argument("--held", action="store_true", help="a stranger keeps a transaction open meanwhile")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    with TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        url = server.create_database()
        print(
            f"{'tasks':>9} {'table MB':>9} {'indexes':>8} {'claim':>6} {'dead rows':>9} {'vacuums':>7} "
            f"{'claim ms':>8} {'pages':>6}"
        )
        for one in samples(url, given.tasks, given.window, given.held):
            print(_line(one), flush=True)
    print(f"{given.tasks} tasks in {time.monotonic() - began:.0f} s")
    return 0


def _line(one: Sample) -> str:
    sizes = [f"{size / 1e6:{width}.1f}" for size, width in ((one.table, 9), (one.indexes, 8), (one.claim_index, 6))]
    return f"{one.tasks:>9} {' '.join(sizes)} {one.dead:>9} {one.vacuums:>7} {one.claim_ms:8.2f} {one.claim_pages:6.0f}"


if __name__ == "__main__":
    sys.exit(main())
