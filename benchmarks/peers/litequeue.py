"""litequeue: processes that pop, do, and mark as done.

Its author answers that several processes may consume one database, locking being left to SQLite; its own settings are
WAL with synchronous=NORMAL. It has no consumer of its own and stores no results. A pop sorts what waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litequeue import LiteQueue

from benchmarks.contestants import Enqueue, Run, count, file_bytes, run_of
from benchmarks.crew import Performed, once_each, processes
from benchmarks.processes import Invalid

DONE = 2


def opened(database: Path) -> LiteQueue:
    """Return the queue of a database file."""
    return LiteQueue(database, timeout=60)


def _loop(database: Path, perform: Performed) -> None:
    queue = opened(database)
    while (message := queue.pop()) is not None:
        perform(int(message.data))
        queue.done(message.message_id)
    queue.close()


class Litequeue:
    """Its queue, and our loop around it."""

    package = "litequeue"
    name = "litequeue"
    settings = "WAL, synchronous=NORMAL; N processes: pop, do, done; no results"
    share = 0.05

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = folder / "litequeue.db"
        queue = opened(database)
        empty = file_bytes(database)
        with queue.transaction():
            for number in range(tasks):
                queue.put(str(number))
        queue.close()
        performed = processes(lambda _, perform: _loop(database, perform), workers, seconds)
        once_each(performed, tasks)
        done = count(database, f"SELECT count(*) FROM Queue WHERE status = {DONE} AND done_time IS NOT NULL")
        if done != tasks or count(database, "SELECT count(*) FROM Queue") != tasks:
            raise Invalid(f"{done} of {tasks} messages are marked as done")
        return run_of(performed, (file_bytes(database) - empty) / tasks)

    @contextmanager
    def enqueuer(self, folder: Path) -> Iterator[Enqueue]:
        """Give what enqueues one task durably: its connection is set to synchronous=FULL."""
        queue = opened(folder / "litequeue.db")
        queue.conn.execute("PRAGMA synchronous=FULL")
        yield lambda number: queue.put(str(number))
        queue.close()


PEER = Litequeue()
