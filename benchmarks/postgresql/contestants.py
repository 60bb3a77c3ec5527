"""Who is compared on PostgreSQL, and what each has to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from benchmarks.contestants import Enqueue, Run, run_of
from benchmarks.crew import Performed
from benchmarks.idle_fleet import Idle

Bulk = Callable[[int], object]
"""Enqueues so many tasks in one call, and returns when they are committed."""


class Contestant(Protocol):
    """Somebody who does tasks from a PostgreSQL database.

    Attributes:
        name: how the tables call it.
        package: its name in the package index.
        settings: how it is used.
        share: its part of the tasks of the fastest, so that a round takes everybody about as long.
    """

    name: str
    package: str
    settings: str
    share: float

    def run(self, url: str, tasks: int, workers: int) -> Run:
        """Do so many no-op tasks, which all wait before, with so many worker processes.

        The time is that from the first claim to the last end, as the database's rows tell it: who claims many at a time
        has begun the last of them long before all ends are written.

        Args:
            url: an empty database.
            tasks: how many.
            workers: how many.

        Raises:
            benchmarks.processes.Invalid: a task was lost or done twice.
        """

    def enqueuer(self, url: str) -> AbstractContextManager[tuple[Enqueue, Bulk]]:
        """Give what enqueues one task, and what enqueues many, in an empty database."""

    def idle(self, url: str, workers: int, place: Path) -> AbstractContextManager[Idle]:
        """Give so many idle workers.

        Args:
            url: an empty database.
            workers: how many.
            place: an empty directory.
        """


def timed(performed: Sequence[Performed], seconds: float) -> Run:
    """Return the run of workers who remember their tasks, with the rate that the database's own times tell."""
    tasks = sum(len(one.numbers) for one in performed)
    return replace(run_of(performed, 0.0), rate=tasks / seconds)
