"""What is compared: Fleet, its peers, and raw loops, each doing the same tasks with so many workers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.crew import Performed

Enqueue = Callable[[int], object]
"""Enqueues one task with this number, and returns when it is committed."""


@dataclass(frozen=True)
class Run:
    """One run of a contestant that did every task exactly once.

    Attributes:
        rate: tasks per second, from the start of the first execution to the start of the last.
        shares: how many each worker did of the half of the tasks that were begun first.
        bytes_per_task: by how much the database file grew for each task that was enqueued and done.
    """

    rate: float
    shares: tuple[int, ...]
    bytes_per_task: float

    @property
    def fairness(self) -> float:
        """The slowest worker's share of the first half of the tasks, against the fastest's."""
        return min(self.shares) / max(self.shares)


class Contestant(Protocol):
    """Somebody who does tasks.

    Attributes:
        name: how the tables call it.
        settings: how it is used, and what a commit of it survives.
        share: its part of the tasks of the fastest, so that a round takes everybody about as long. Where a peer's claim
            takes longer the more tasks wait, the shorter queue is in the peer's favour.
    """

    name: str
    settings: str
    share: float

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do so many tasks with so many workers.

        Args:
            folder: an empty directory.
            tasks: how many.
            workers: how many.
            seconds: how long each takes; 0 is a no-op.

        Raises:
            benchmarks.processes.Invalid: a task was lost or done twice.
        """


def tasks_of(contestant: Contestant, tasks: int) -> int:
    """Return how many tasks of a run are this contestant's."""
    return max(50, int(tasks * contestant.share))


def run_of(performed: Sequence[Performed], bytes_per_task: float) -> Run:
    """Return the run that workers made, who remember their tasks."""
    times = sorted((when, index) for index, one in enumerate(performed) for when in one.times)
    half = [index for _, index in times[: max(1, len(times) // 2)]]
    shares = tuple(half.count(index) for index in range(len(performed)))
    return Run(len(times) / ((times[-1][0] - times[0][0]) / 1e9), shares, bytes_per_task)


def file_bytes(database: Path) -> int:
    """Return how large a database file is once all of its log is in it."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return database.stat().st_size


def count(database: Path, statement: str) -> int:
    """Return the number that a statement reads."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        return int(connection.execute(statement).fetchone()[0])
