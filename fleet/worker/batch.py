"""Executing what one claim brought, one task after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleet.domain.execution import ClaimedTask
from fleet.domain.worker import WorkerStatus
from fleet.worker.alone import LoneBeats, Orphanhood
from fleet.worker.board import Board
from fleet.worker.claims import Claims
from fleet.worker.context import Context
from fleet.worker.executor import execute, reap_leftovers
from fleet.worker.handlers import Handler, terms_of, timeout_of
from fleet.worker.orders import Orders
from fleet.worker.own_task import OwnTask
from fleet.worker.prefetch import BATCH_SECONDS, Prefetch
from fleet.worker.protocol import Link
from fleet.worker.record import nanoseconds, now_ns
from fleet.worker.slot import Slot
from fleet.worker.wholeness import Wholeness


class BatchRunner:
    """Executes batches, so that whatever happens to this process is blamed on the one task that it executed.

    Args:
        slot: the worker's record in shared memory.
        board: the group's shared memory.
        keeper: the socket to the keeper.
        claims: where executions are handed to.
        orders: whether to go on.
        handlers: what can be executed, by name.
        prefetch: learns how long tasks take.
        wholeness: whether this process still has what it needs.
        beat_alone: returns beats of the worker's own, for when the supervisor is gone.
    """

    def __init__(
        self,
        slot: Slot,
        board: Board,
        keeper: Link,
        claims: Claims,
        orders: Orders,
        handlers: Mapping[str, Handler],
        prefetch: Prefetch,
        beat_alone: Callable[[], LoneBeats],
        wholeness: Wholeness,
    ) -> None:
        self._slot = slot
        self._board = board
        self._keeper = keeper
        self._claims = claims
        self._orders = orders
        self._handlers = handlers
        self._graces = {name: nanoseconds(handler.time_to_end) for name, handler in handlers.items()}
        self._own: OwnTask | None = None
        self._prefetch = prefetch
        self._orphanhood = Orphanhood(beat_alone)
        self._wholeness = wholeness
        self._unrecorded = False
        self._ended_at = self._reaped_at = 0.0

    in_flight = 0

    def size(self) -> int:
        """Return how many tasks to claim."""
        return self._prefetch.size()

    @property
    def overlaps(self) -> bool:
        """Whether the next tasks are to be claimed while these are executed."""
        return self._prefetch.overlaps and not self._orders.alone

    def wait_for_end(self) -> None:
        """Nothing is executed when this is called."""

    def abandon(self) -> None:
        """Nothing is executed when this is called."""

    def run(self, tasks: Sequence[ClaimedTask]) -> None:
        """Execute the tasks; what is not begun when an order to drain comes is given back."""
        if len(tasks) > 1 and not self._board.watches_batches:
            self._keeper.send("batch")
        for position, claimed in enumerate(tasks):
            if position and self._orders.told_to_stop:
                self._claims.give_back(tasks[position:], "the worker drains")
                return
            if not self._execute(position, claimed, is_last=position + 1 == len(tasks)):
                # The keeper has given the rest back: the task before took long.
                return
            if position + 1 < len(tasks) and self._unrecorded and not self._put_aside():
                return

    def _execute(self, position: int, claimed: ClaimedTask, is_last: bool) -> bool:
        handler = self._handlers.get(claimed.task)
        timeout = timeout_of(claimed, handler)
        grace = self._graces.get(claimed.task, 0)
        if not self._slot.begin(position, now_ns(), *terms_of(claimed, timeout), grace):
            return False
        if self._orders.alone:
            self.supervisor_gone()
        self._own = None
        execution = execute(handler, claimed, lambda: self._context(claimed, timeout))
        # While the record still says that it executes: whatever broke this process is charged.
        self._ended_at = execution.began + execution.seconds
        self._wholeness.check(self._ended_at)
        self._slot.end_of_execution(nanoseconds(self._ended_at))
        self._orphanhood.end()
        if is_last or self._ended_at - self._reaped_at > BATCH_SECONDS:
            self._reaped_at = self._ended_at
            reap_leftovers()
        self._prefetch.learn(execution.seconds)
        self._unrecorded = self._claims.take(self._claims.completion(execution, self._own))
        return True

    def _context(self, claimed: ClaimedTask, timeout: float | None) -> Context:
        """Return what a handler that wants it is given of its execution."""
        seat = self._slot.seats[0]
        self._own = self._claims.own_task(claimed)
        return Context(
            claimed, lambda: self._orders.stop_reason(seat), self._own, timeout, lambda: self._orders.stop(seat)
        )

    def _put_aside(self) -> bool:
        """Note how the last task ended, or record all so far if the batch lasts; False when its rest is not ours."""
        lasts = self._ended_at - self._claims.recorded_at > BATCH_SECONDS
        if not lasts and self._claims.note():
            return True
        status = self._claims.record().status
        self._claims.forget_noted()
        return status in (WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)

    def supervisor_gone(self) -> None:
        """Beat for the worker while it executes."""
        if self._slot.executing:
            self._orphanhood.begin()
