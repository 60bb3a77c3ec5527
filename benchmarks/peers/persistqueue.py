"""persist-queue: `SQLiteAckQueue` with threads of one process that get, do, and acknowledge.

It is the one of its queues that keeps a task until it is done. Its author says that it works for threads, not for
several processes (a get reads and marks in two steps, guarded by a lock of the process), and its documentation asks
for `multithreading=True`. So here N workers are N threads, which never wait for each other's commits, but share one
interpreter: it is the only contestant without processes. WAL; its connections are set to synchronous=NORMAL, which it
has no option for, since as shipped every get and every ack is a sync. It stores no results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from persistqueue import Empty, SQLiteAckQueue, SQLiteQueue

from benchmarks.contestants import Enqueue, Run, count, file_bytes, run_of
from benchmarks.crew import Performed, once_each, threads
from benchmarks.processes import Invalid, elapsed

ACKED = 5


def opened(folder: Path, synchronous: str) -> SQLiteAckQueue:
    """Return the queue of a folder."""
    queue = SQLiteAckQueue(str(folder / "queue"), multithreading=True, timeout=60)
    for connection in (queue._putter, queue._getter):
        connection.execute(f"PRAGMA synchronous={synchronous}")
    return queue


def _database(folder: Path) -> Path:
    return folder / "queue" / "data.db"


class Crew:
    """What the threads share: a queue that is opened in their process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queue: SQLiteAckQueue | None = None

    def prepare(self) -> None:
        """Open the queue."""
        self._queue = opened(self._folder, "NORMAL")

    def __call__(self, _: int, perform: Performed) -> None:
        """Work until the queue is empty."""
        queue = self._queue
        assert queue is not None
        while True:
            try:
                item = queue.get(block=False, raw=True)
            except Empty:
                return
            perform(item["data"])
            queue.ack(id=item["pqid"])


class PersistQueue:
    """Its queue with acknowledgement, and our loop around it."""

    package = "persist-queue"
    name = "persist-queue (threads)"
    settings = "WAL, synchronous=NORMAL; N threads of one process: get, do, ack; no results"
    share = 0.25

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        queue = opened(folder, "OFF")
        empty = file_bytes(_database(folder))
        for number in range(tasks):
            queue.put(number)
        queue.close()
        crew = Crew(folder)
        performed = threads(crew, workers, seconds, prepare=crew.prepare)
        once_each(performed, tasks)
        done = count(_database(folder), f"SELECT count(*) FROM ack_queue_default WHERE status = {ACKED}")
        if done != tasks:
            raise Invalid(f"{done} of {tasks} items are acknowledged")
        return run_of(performed, (file_bytes(_database(folder)) - empty) / tasks)

    @contextmanager
    def enqueuer(self, folder: Path) -> Iterator[Enqueue]:
        """Give what enqueues one task durably, as by default."""
        queue = opened(folder, "FULL")
        yield queue.put
        queue.close()


def put_many(folder: Path, tasks: int) -> float:
    """Enqueue many in one transaction, as its documentation recommends for batches (`auto_commit=False`).

    Returns:
        The seconds that it took.
    """
    queue = SQLiteQueue(str(folder / "many"), multithreading=True, auto_commit=False)
    seconds = elapsed(lambda: _put_all(queue, tasks))
    queue.close()
    found = count(folder / "many" / "data.db", "SELECT count(*) FROM queue_default")
    if found != tasks:
        raise Invalid(f"{found} of {tasks} items are stored")
    return seconds


def _put_all(queue: SQLiteQueue, tasks: int) -> None:
    for number in range(tasks):
        queue.put(number)
    queue.task_done()


PEER = PersistQueue()
