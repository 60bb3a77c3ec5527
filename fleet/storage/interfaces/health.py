"""How workers are, and what is done about it: verdicts, orders to workers, quarantines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fleet.domain.execution import Fence
from fleet.domain.health import Health
from fleet.domain.lanes import Lane
from fleet.domain.orders import ORDER_LIFETIME, OrderKind, OrderRecord
from fleet.domain.quarantine import Misfire, NewQuarantine, Quarantine
from fleet.domain.worker import WorkerRecord


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A worker as it was seen, and how it is now."""

    worker: WorkerRecord
    health: Health


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the live workers.

    Attributes:
        workers: in full.
        is_all: whether there are no others.
    """

    workers: tuple[WorkerRecord, ...]
    is_all: bool


class HealthRecords(Protocol):
    """Verdicts on workers, and quarantines."""

    def part(self, turn: int, most: int) -> Part:
        """Return at most `most` live workers; of turns that follow one another each returns the next ones."""

    def record(self, changes: Sequence[HealthChange]) -> tuple[str, ...]:
        """Store how workers are, with events, in one transaction; return a line for each that has become unhealthy.

        A worker that has ended, or is of another incarnation, is passed over. That one is well that was never assessed
        before is no event.
        """

    def misfires(self, workers: Collection[str], since: datetime) -> tuple[Misfire, ...]:
        """Return what these workers failed after `since` and another one then did, newest first; bounded for each."""

    def wanted_lanes(self) -> tuple[Lane, ...]:
        """Return the lanes in which tasks wait for a worker now, those of paused queues left out."""

    def quarantine(self, new: NewQuarantine) -> Quarantine | None:
        """Begin a quarantine, with an event; None when one of this subject is open already."""

    def release(self, what: str, by: str) -> tuple[Quarantine, ...]:
        """End the open quarantines of a subject (a worker id or a host), or the one of this id; with an event each.

        What has no such subject is taken for an id. Nothing is returned when there is none.
        """

    def release_overdue(self) -> tuple[str, ...]:
        """End the quarantines whose time is over; return a line each."""

    def quarantines(self, *, open_only: bool = True) -> tuple[Quarantine, ...]:
        """Return quarantines, newest first; `open_only` leaves out those that have been released."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete quarantines and orders that ended more than `older_than` seconds ago; return how many."""


class WorkerOrders(Protocol):
    """Orders to workers: rows of `worker_command`, taken once and answered once."""

    def give(
        self,
        worker_id: str,
        incarnation: str,
        kind: OrderKind,
        *,
        reason: str,
        arguments: Mapping[str, Any] | None = None,
        lifetime: float = ORDER_LIFETIME,
        cooldown: float = 0.0,
    ) -> OrderRecord | None:
        """Order something of one life of a worker, with an event.

        Args:
            worker_id: the worker.
            incarnation: its life.
            kind: what.
            reason: why, for the event.
            arguments: with what.
            lifetime: seconds after which it is void.
            cooldown: seconds for which no second order of this kind is given to a worker of this name.

        Returns:
            The order; None when the worker is not active (who drains may still be asked for its status, and to end a
            task), one of the kind is open, or the last one is too recent.
        """

    def take(self, incarnations: Collection[str], taker: str) -> tuple[OrderRecord, ...]:
        """Take the open orders to these lives, by id, also those that another keeper took and did not answer.

        Orders whose time is over are left. Takes the write lock only when one is not this taker's yet.
        """

    def answer(
        self,
        command_id: int,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a taken order (failed when an error is given), with an event; return False when none was taken.

        The task of a `set_task` is given back to all in the same transaction; where the worker has claimed it
        meanwhile, the order has succeeded whatever the answer was to be.
        """

    def assign(self, command_id: int) -> int | None:
        """Let the task of a taken `set_task` wait for its worker alone.

        The order stays taken until `follow` finds the task claimed, or it is answered or expires.

        Returns:
            The lane in which it waits now; None when it was not assigned: an open order is then refused with the
            reason.
        """

    def follow(self, command_id: int) -> bool:
        """Answer a `set_task` whose worker has claimed the task, or never will; return False while it waits."""

    def cancel_task(self, command_id: int) -> Fence | None:
        """Ask for the end of the task that a taken `cancel_task` names, and answer, in one transaction.

        Returns:
            The claim whose end is asked for; None when this life of the worker does not hold the task: then the order
            is refused with the reason.
        """

    def expire(self) -> tuple[str, ...]:
        """End orders whose time, or whose worker, is over, and give back tasks that no order assigns.

        Level-triggered: whoever died in the middle of an order, the task that it was about is found here.

        Returns:
            A line for each.
        """

    def get(self, command_id: int) -> OrderRecord | None:
        """Return an order, None when there is none of this id."""

    def list(self, worker_id: str | None = None, limit: int = 100) -> tuple[OrderRecord, ...]:
        """Return orders, newest first."""
