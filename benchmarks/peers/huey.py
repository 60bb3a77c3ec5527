"""huey: `SqliteHuey` and its own consumer with worker processes (`huey_consumer -k process -w N`).

Results are stored, which is its default for tasks that return something. `strict_fifo` stays off, as by default: it
only adds AUTOINCREMENT. Its documentation takes the library's `synchronous` for 1 (NORMAL); Python's SQLite has 2
(FULL), so both are run: as shipped, and at NORMAL, which is what Fleet's workers use. `fsync=False` (OFF) is not
compared: it survives less. The busy timeout is 60 s, as for the floors. Quiet logging (`-q`), since Fleet's is, and no
periodic tasks (`-n`), since there are none.
"""

from __future__ import annotations

import signal
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contestants import Enqueue, Run, count, file_bytes, run_of
from benchmarks.crew import Performed, once_each
from benchmarks.peers import huey_app
from benchmarks.processes import Invalid, python, running, wait_for


@contextmanager
def consumer(folder: Path, workers: int, durability: str) -> Iterator[int]:
    """Run the consumer beside the block, and give its process id."""
    command = python("-m", "huey.bin.huey_consumer", "benchmarks.peers.huey_app.huey")
    command += ["-k", "process", "-w", str(workers), "-q", "-n"]
    with running(command, stop=signal.SIGINT, more=_variables(folder, durability)) as process:
        yield process.pid


def _variables(folder: Path, durability: str) -> dict[str, str]:
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    return {
        huey_app.DATABASE: str(folder / "huey.db"),
        huey_app.DURABILITY: durability,
        huey_app.MARKS: str(marks),
    }


def performed(folder: Path) -> list[Performed]:
    """Return what each worker process remembers."""
    found = []
    for path in sorted((folder / "marks").iterdir()):
        values = array("q", path.read_bytes())
        found.append(Performed(0.0, values[::2], values[1::2]))
    return found


@contextmanager
def opened(folder: Path, durability: str) -> Iterator[huey_app.App]:
    """Give the queue of a folder."""
    queue = huey_app.App(str(folder / "huey.db"), durability)
    yield queue
    queue.storage.close()


class Huey:
    """The consumer.

    Args:
        name: how the tables call it.
        durability: a key of `huey_app.WAYS`.
        settings: the same, for readers.
    """

    package = "huey"
    share = 0.1

    def __init__(self, name: str, durability: str, settings: str) -> None:
        self.name = name
        self.settings = f"WAL, {settings}; huey_consumer -k process -w N; result stored"
        self._durability = durability

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = folder / "huey.db"
        # Enqueueing is not measured here: unsynced, it is done sooner.
        with opened(folder, "unsynced") as queue:
            empty = file_bytes(database)
            for number in range(tasks):
                queue.work(number, seconds)
        with consumer(folder, workers, self._durability):
            wait_for(lambda: count(database, "SELECT count(*) FROM kv") >= tasks, f"{tasks} results of huey")
        done = performed(folder)
        once_each(done, tasks)
        left = count(database, "SELECT count(*) FROM task")
        if left or count(database, "SELECT count(*) FROM kv") != tasks:
            raise Invalid(f"{left} tasks are left, or not every result is stored")
        done += [Performed() for _ in range(workers - len(done))]
        return run_of(done, (file_bytes(database) - empty) / tasks)

    @contextmanager
    def enqueuer(self, folder: Path) -> Iterator[Enqueue]:
        """Give what enqueues one task durably: `fsync=True`."""
        with opened(folder, "durable") as queue:
            yield lambda number: queue.work(number, 0.0)


WAYS = (
    Huey("huey", "normal", "synchronous=NORMAL"),
    Huey("huey, as shipped", "shipped", "synchronous=FULL"),
)
