"""Idle workers of somebody's, waiting for what comes."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ours
from benchmarks.processes import Invalid, folder, running, wait_for
from fleet import Fleet

SETTLING = 2.0


@dataclass(frozen=True)
class Idle:
    """Workers that wait.

    Attributes:
        pid: the process that started them.
        enqueue: enqueues a task for each number, all at once; each says when it began.
        began: returns when each began, in nanoseconds of the monotonic clock.
    """

    pid: int
    enqueue: Callable[[list[int]], None]
    began: Callable[[], dict[int, int]]

    def latencies(self, first: int, times: int, together: int, gap: float) -> list[float]:
        """Return the milliseconds from the return of the enqueue, which is the commit, to the start of each handler.

        A handler that began before the call returned counts as 0.

        Args:
            first: the first task's number.
            times: how often to enqueue.
            together: so many at once.
            gap: seconds of silence in between, on average.
        """
        committed: dict[int, int] = {}
        for number in range(first, first + times * together, together):
            time.sleep(gap * random.uniform(0.6, 1.4))
            numbers = list(range(number, number + together))
            self.enqueue(numbers)
            committed.update(dict.fromkeys(numbers, time.monotonic_ns()))
        wait_for(lambda: committed.keys() <= self.began().keys(), f"the start of {len(committed)} tasks", 60)
        began = self.began()
        return [max(0.0, (began[number] - when) / 1e6) for number, when in committed.items()]


def stamps(marks: Path) -> dict[int, int]:
    """Return when each task began, by its number.

    Raises:
        Invalid: one was executed twice.
    """
    found: dict[int, int] = {}
    for path in marks.iterdir():
        values = array("q", path.read_bytes())
        found.update(zip(values[::2], values[1::2], strict=True))
        if len(set(values[::2])) != len(values) // 2:
            raise Invalid("a task was executed twice")
    return found


@contextmanager
def fleet(workers: int, module: str = "fleet.cli.worker") -> Iterator[Idle]:
    """Give Fleet's idle workers, started as this module does it."""
    with folder() as place:
        database, marks = place / "fleet.db", place / "marks"
        marks.mkdir()
        ours.created(database)
        app = Fleet(database)

        def enqueue(numbers: list[int]) -> None:
            payloads = [{"number": number, "folder": str(marks)} for number in numbers]
            if len(payloads) == 1:
                app.enqueue("stamp", payloads[0])
            else:
                app.enqueue_many("stamp", payloads)

        with running(ours.worker_group(database, "--processes", str(workers), module=module)) as group:
            ours.ready(database, workers)
            enqueue(list(range(-workers, 0)))
            wait_for(lambda: len(stamps(marks)) == workers, "the first task of each worker")
            time.sleep(SETTLING)
            yield Idle(group.pid, enqueue, lambda: stamps(marks))
        app.close()


@contextmanager
def huey(workers: int) -> Iterator[Idle]:
    """Give huey's idle worker processes."""
    from benchmarks.peers import huey as peer

    with folder() as place, peer.opened(place, "durable") as queue, peer.consumer(place, workers, "normal") as pid:

        def enqueue(numbers: list[int]) -> None:
            for number in numbers:
                queue.work(number, 0.0)

        enqueue([-1])
        wait_for(lambda: len(stamps(place / "marks")) == 1, "huey's first task")
        time.sleep(SETTLING)
        yield Idle(pid, enqueue, lambda: stamps(place / "marks"))
