"""What somebody has ordered of the group's workers by a row: noticed between two beats, by reads alone."""

from __future__ import annotations

from fleet.clock import boottime
from fleet.domain.worker import WorkerFilter, WorkerStatus
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.settings import WorkerSettings

BETWEEN_GLANCES = 0.25
"""Seconds between two glances while commits come in."""

WHILE_EXECUTING = 1.0
"""Seconds between two looks for tasks to be cancelled while some are executed: nobody listens for commits then."""


class Glances:
    """Looks for orders.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        storage: the store.
    """

    def __init__(self, settings: WorkerSettings, board: Board, storage: Storage) -> None:
        self._settings = settings
        self._board = board
        self._storage = storage
        self._drains_at = 0.0
        self._cancels_at = 0.0

    def drain_ordered(self) -> bool | None:
        """Return whether a worker was told to go and has not heard it; None when it was looked for just now."""
        if boottime() < self._drains_at:
            return None
        self._drains_at = boottime() + BETWEEN_GLANCES
        flagged = WorkerFilter(status=(WorkerStatus.TERMINATING,), group_id=self._settings.group_id)
        told = {slot.incarnation for slot in self._board.slots if slot.drain}
        return any(worker.incarnation not in told for worker in self._storage.registry.list(flagged))

    @property
    def until_drains(self) -> float:
        """Seconds until `drain_ordered` looks again."""
        return max(0.0, self._drains_at - boottime())

    def notice_cancels(self) -> float:
        """Pass on to workers that what they execute is to be cancelled; return seconds until the next look."""
        executing = {
            self._settings.worker_name(number): slot for number, slot in enumerate(self._board.slots) if slot.executing
        }
        if not executing:
            return float("inf")
        now = boottime()
        if now >= self._cancels_at:
            self._cancels_at = now + WHILE_EXECUTING
            for worker, fence in self._storage.queue.cancel_requests(tuple(executing)):
                slot = executing.get(worker)
                if slot is not None:
                    slot.cancel(fence)
        return self._cancels_at - now
