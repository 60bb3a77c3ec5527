"""One claimed task in a real store, as its handler meets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet import Fleet
from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.signals import StopReason
from fleet.storage.interfaces import Storage
from fleet.worker.context import Context
from fleet.worker.own_task import OwnTask
from tests.storage.samples import row, running_task
from tests.worker.desk import Desk


@dataclass
class Held:
    """A claimed task with all that its handler and its worker have of it."""

    store: Storage
    claimant: Claimant
    claimed: ClaimedTask
    asked: bool = False
    own: OwnTask = field(init=False)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Make what another execution of the same claim would get."""
        self.own = OwnTask(self.store, self.claimant, self.claimed, lambda operation, what: operation())
        self.context = Context(self.claimed, lambda: StopReason.CANCELLED if self.asked else None, self.own)

    def lose(self) -> None:
        """Let the claim be somebody else's affair."""
        released = self.store.queue.release(
            self.claimant.incarnation, [self.claimed.fence], interrupted=False, reason="lost"
        )
        assert released == (self.claimed.task_id,)

    def row(self) -> Any:
        """Return the task's row."""
        return row(self.store, self.claimed.task_id)


@pytest.fixture
def held(memory: Storage) -> Held:
    """Give a claimed task, in memory."""
    return Held(memory, *running_task(memory))


@pytest.fixture
def held_on_disk(sqlite_file: Storage) -> Held:
    """Give a claimed task, in a SQLite file."""
    return Held(sqlite_file, *running_task(sqlite_file))


@pytest.fixture
def held_anywhere(store: Storage) -> Held:
    """Give a claimed task, in each kind of database."""
    return Held(store, *running_task(store))


@pytest.fixture
def app(sqlite_path: Path) -> Iterator[Fleet]:
    """Give a Fleet object on the same SQLite file."""
    fleet = Fleet(sqlite_path)
    yield fleet
    fleet.close()


@pytest.fixture
def desk(memory: Storage) -> Desk:
    """Give a registered worker's desk, in memory."""
    return Desk(memory)
