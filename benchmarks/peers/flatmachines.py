"""flatmachines: `SQLiteWorkBackend`, whose pool is claimed from and completed to by worker processes.

A claim of it reads the next item and then marks it, in two steps that are guarded within a process only: two processes
were seen to claim the same item (one in a thousand, with four processes). A run that does a task twice counts for
nothing; so each claim is made under a lock of the file system here, which costs microseconds. It opens a connection
for every call and has no options; a database is in rollback-journal mode with synchronous=FULL as shipped, and is also
run in WAL mode, which its checkpoints, locks and signals set on the file that they share with it. complete() deletes
the item; no result is stored.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flatmachines import SQLiteWorkBackend
from flatmachines.work import SQLiteWorkPool, WorkItem

from benchmarks.contestants import Enqueue, Run, count, file_bytes, run_of
from benchmarks.crew import Performed, once_each, processes
from benchmarks.processes import Invalid

POOL = "bench"


@contextmanager
def _alone(lock: int) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


async def _claimed(pool: SQLiteWorkPool, worker: str, lock: int) -> WorkItem | None:
    with _alone(lock):
        return await pool.claim(worker)


async def _work(database: Path, worker: int, perform: Performed) -> None:
    pool = SQLiteWorkBackend(str(database)).pool(POOL)
    lock = os.open(database.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    while (item := await _claimed(pool, f"worker-{worker}", lock)) is not None:
        perform(item.data["number"])
        await pool.complete(item.id, True)


async def _push(database: Path, tasks: int) -> None:
    pool = SQLiteWorkBackend(str(database)).pool(POOL)
    for number in range(tasks):
        await pool.push({"number": number})


class FlatMachines:
    """Its work pool, and our loop around it.

    Args:
        name: how the tables call it.
        journal: the journal mode of the file.
    """

    package = "flatmachines"
    share = 0.0125

    def __init__(self, name: str, journal: str) -> None:
        self.name = name
        self.settings = f"journal {journal}, synchronous=FULL; N processes: claim, do, complete; no results"
        self._journal = journal

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = self._created(folder)
        empty = file_bytes(database)
        asyncio.run(_push(database, tasks))
        performed = processes(lambda worker, perform: asyncio.run(_work(database, worker, perform)), workers, seconds)
        once_each(performed, tasks)
        left = count(database, "SELECT count(*) FROM work_pool")
        if left:
            raise Invalid(f"{left} of {tasks} items are left")
        return run_of(performed, (file_bytes(database) - empty) / tasks)

    def _created(self, folder: Path) -> Path:
        database = folder / "flatmachines.db"
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(f"PRAGMA journal_mode={self._journal}").fetchall()
        SQLiteWorkBackend(str(database))
        return database

    @contextmanager
    def enqueuer(self, folder: Path) -> Iterator[Enqueue]:
        """Give what enqueues one task durably, as always."""
        pool = SQLiteWorkBackend(str(self._created(folder))).pool(POOL)
        with asyncio.Runner() as runner:
            yield lambda number: runner.run(pool.push({"number": number}))


WAYS = (FlatMachines("flatmachines, WAL", "WAL"), FlatMachines("flatmachines, as shipped", "DELETE"))
