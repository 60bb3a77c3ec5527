"""One database as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fleet.storage.interfaces.adapters import Adapters
from fleet.storage.interfaces.control import ControlPlane
from fleet.storage.interfaces.health import HealthRecords, WorkerOrders
from fleet.storage.interfaces.queue import WorkQueue
from fleet.storage.interfaces.registration import RegistrationBackend
from fleet.storage.interfaces.rules import QueueRules
from fleet.storage.interfaces.schedules import Schedules
from fleet.storage.interfaces.transaction import Transaction


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a server keeps dead rows for.

    Attributes:
        pid: the server's process for its session.
        application: what the session calls itself; "" where it does not.
        state: what it does, in the server's words.
        seconds: how long it has been open.
    """

    pid: int
    application: str
    state: str
    seconds: float


class Watch(Protocol):
    """Notices commits of others without polling hard: the keeper's ear."""

    def attend(self) -> None:
        """Begin to be told of tasks, or go on: called before the queue is looked at for somebody who is idle."""

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when something may have changed, None where there is none."""

    def changed(self) -> bool:
        """Return whether anybody committed since the last call (or since the watch began)."""

    def poll_interval(self) -> float:
        """Return seconds between two looks where no descriptor helps."""

    def obstacle(self) -> str | None:
        """Return what keeps it from being told of anything, in words for people; None where nothing does."""

    def replaced(self) -> bool:
        """Return whether the database behind the path is another one than was opened."""

    def close(self) -> None:
        """Release what it holds."""


class Storage(Protocol):
    """One database: its facets, and transactions that span them."""

    @property
    def registry(self) -> RegistrationBackend:
        """The registry of workers."""

    @property
    def queue(self) -> WorkQueue:
        """The queue of tasks."""

    @property
    def rules(self) -> QueueRules:
        """Pauses, limits, batches and settings of the queue."""

    @property
    def schedules(self) -> Schedules:
        """Periodic tasks."""

    @property
    def control(self) -> ControlPlane:
        """Pools, groups, commands, maintenance."""

    @property
    def health(self) -> HealthRecords:
        """How workers are, and quarantines."""

    @property
    def adapters(self) -> Adapters:
        """Who starts and stops worker groups."""

    @property
    def orders(self) -> WorkerOrders:
        """Orders to single workers."""

    @property
    def url(self) -> str:
        """The database's URL without a password."""

    @property
    def uuid(self) -> str:
        """Which database it is, wherever it is moved; a copy has the same."""

    @property
    def created(self) -> bool:
        """Whether opening it has made its tables."""

    @property
    def tolerates_slow_writes(self) -> bool:
        """Whether a worker whose beat waits may go on after reading its row (SQLite), or must fence itself."""

    @property
    def largest_batch(self) -> int:
        """How many tasks a claim should bring at most: fewer where nobody else can write meanwhile."""

    def now(self) -> datetime:
        """Return the store's time."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a durable write transaction, committed at the end of the block, rolled back on an exception."""

    def watch(self, group_id: str | None = None) -> Watch:
        """Begin to watch for commits; with a group's id for its keeper, who alone uses this store, in one thread."""

    def trim(self) -> bool:
        """Shorten what the database keeps beside its rows, where it has grown large; return whether that was tried.

        Bounded: whoever reads an old state all the time keeps it from that, and is not waited for.
        """

    def shrink(self) -> bool:
        """Give some of the unused space inside a file back, a bounded step; return whether there is more to give."""

    def sizes(self) -> Mapping[str, int]:
        """Return bytes by what takes them: `log` (written ahead, not yet in the file), `free` (usable again)."""

    def seal(self) -> str | None:
        """Return what whoever wants to write is told, where the database is sealed; None where it is not."""

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Return the oldest open transactions of others, as far as they may be seen; none on SQLite."""

    def wait_at_most(self, seconds: float) -> None:
        """Have a transaction give up after it has waited so long for locks of others; DatabaseBusy is raised then."""

    def on_wait(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` from time to time while an operation waits for a lock or a connection."""

    def on_write(self, callback: Callable[[bool], None] | None) -> None:
        """Call `callback` with True before a transaction asks for the write lock, and with False when it has ended."""

    def close(self) -> None:
        """Close all connections."""
