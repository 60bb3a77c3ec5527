"""Databases in which a claim could be slow, and the worker whose claims are measured in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.compare import Series
from benchmarks.processes import Invalid
from benchmarks.registry import register, rows_of
from fleet.config import locate
from fleet.domain.execution import Claimant, Finish
from fleet.domain.lanes import LaneClaim
from fleet.domain.limits import Limit
from fleet.domain.task import NewTask, TaskStatus
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

SATURATED = 200_000
FINISHED_TIMES = 5
LARGE_PAYLOAD = '{"text":"' + "x" * 100_000 + '"}'
EMPTY, GOAL, KINDS = "an empty table", "5 x finished, 1 x waiting for others", "20 handlers in 3 queues"

Prepare = Callable[[Storage, Path], None]
Tasks = Callable[[int], NewTask]


@dataclass
class Situation:
    """A database, and the worker that is measured in it."""

    name: str
    storage: Storage
    claimant: Claimant
    lanes: Sequence[LaneClaim]
    microseconds: list[float] = field(default_factory=list)

    def round(self, cycles: int) -> None:
        """Claim and finish so many tasks one by one."""
        queue = self.storage.queue
        finishes: list[Finish] = []
        began = time.perf_counter()
        for _ in range(cycles):
            [task] = queue.finish_and_claim(self.claimant, finishes, self.lanes, 1).tasks
            finishes = [Finish(task.fence, TaskStatus.DONE, result_json="1")]
        queue.finish_and_claim(self.claimant, finishes, (), 0)
        self.microseconds.append((time.perf_counter() - began) / cycles * 1e6)

    @property
    def series(self) -> Series:
        """Microseconds of one cycle, by round."""
        return Series(tuple(self.microseconds))


@dataclass
class Places:
    """Makes databases in a folder.

    Args:
        folder: where.
        rows: how many rows a million stands for.
        waiting: tasks to claim in each.
    """

    folder: Path
    rows: int
    waiting: int

    def path(self, name: str) -> Path:
        """Return where the database of a situation is."""
        return self.folder / f"{name.replace(' ', '-').replace(',', '')}.db"

    def situation(self, name: str, *prepare: Prepare, tasks: Tasks = lambda number: NewTask("work")) -> Situation:
        """Return a database that was prepared, with tasks for its worker to claim."""
        path = self.path(name)
        storage = open_storage(locate(str(path)), create=True)
        for step in prepare:
            step(storage, path)
        storage.queue.enqueue([tasks(number) for number in range(self.waiting)])
        served = [lane for lane in storage.queue.lanes() if lane.task.startswith("work") and not lane.requires]
        lanes = [(lane.lane_id, 0, 0) for lane in served]
        return Situation(name, storage, register(storage, "measured"), lanes)


def saturated(rows: int) -> Prepare:
    """Return what puts tasks of one key, whose only slot is taken, at the head of the queue."""

    def fill(storage: Storage, path: Path) -> None:
        storage.rules.set_limit(Limit("key", max_running=1))
        for first in range(0, rows, 50_000):
            count = min(50_000, rows - first)
            storage.queue.enqueue([NewTask("work", concurrency_key="key", priority=9)] * count)
        lanes = [(lane.lane_id, 0, 0) for lane in storage.queue.lanes()]
        if not storage.queue.claim(register(storage, "holder"), lanes, 1).tasks:
            raise Invalid("the key's slot could not be taken")

    return fill


def of_many_kinds(number: int) -> NewTask:
    """Return one of sixty kinds of task."""
    return NewTask(f"work{number % 20}", queue=f"queue{number // 20 % 3}")


def situations(places: Places) -> list[Situation]:
    """Return every situation, the empty table first."""
    rows = places.rows
    finished = rows_of(NewTask("past"), rows * FINISHED_TIMES, "done")
    lacking = rows_of(NewTask("lacking"), rows)
    later = rows_of(NewTask("work", delay=9e7), rows, "scheduled", rank=-100)
    return [
        places.situation(EMPTY),
        places.situation(GOAL, finished, lacking),
        places.situation("waiting in another queue", rows_of(NewTask("other", queue="other"), rows)),
        places.situation("waiting for others' capabilities", rows_of(NewTask("work", requires={"gpu": 1}), rows)),
        places.situation("future of higher priority", later),
        places.situation("a saturated key at the head", saturated(min(SATURATED, rows))),
        places.situation("payloads of 100 KB", tasks=lambda number: NewTask("work", payload_json=LARGE_PAYLOAD)),
        places.situation(KINDS, tasks=of_many_kinds),
    ]
