"""Batches that last: what waits behind a long task is given back, and what came before it is recorded."""

from __future__ import annotations

from fleet.clock import boottime
from fleet.domain.execution import Claimant
from fleet.storage.interfaces import WorkQueue
from fleet.worker import outbox
from fleet.worker.board import Board
from fleet.worker.prefetch import BATCH_SECONDS
from fleet.worker.record import Phase, now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import LASTING, Slot


class BatchWatch:
    """Looks at the batches of the group's workers.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        queue: the queue.
    """

    def __init__(self, settings: WorkerSettings, board: Board, queue: WorkQueue) -> None:
        self._settings = settings
        self._board = board
        self._queue = queue

    def run_once(self) -> float:
        """Break up the batches whose present task lasts; return seconds until the next look."""
        batches = [
            (number, slot)
            for number, slot in enumerate(self._board.slots)
            if (slot.held_count > 1 or slot.ahead) and slot.phase in (Phase.EXECUTING, Phase.RECORDING, Phase.CLAIMING)
        ]
        self._board.watches_batches = int(bool(batches))
        for number, slot in batches:
            seat = slot.seats[0]
            if seat.is_executing and now_ns() - seat.started > LASTING:
                self._break_up(self._settings.worker_name(number), slot)
        return BATCH_SECONDS if batches else float("inf")

    def _break_up(self, name: str, slot: Slot) -> None:
        incarnation, lasting = slot.incarnation, slot.seats[0].fence
        revoked = slot.revoke_rest(lasting)
        if revoked is None:
            return
        rest, ended = revoked
        claimant = Claimant(name, incarnation, self._settings.lease)
        if ended:
            now = boottime()
            self._queue.finish_and_claim(claimant, [outbox.finish(text, now) for text in ended], (), 0)
        # Its start is written now, so that a death that nobody sees is charged to it and not to the tasks behind it.
        is_held = self._queue.start(claimant, lasting)
        if not is_held:
            slot.stop(lasting)
        reason = f"task {lasting.task_id} before it in the batch takes long"
        if slot.ahead and is_held:
            self._queue.release_later(claimant, lasting, reason)
        if rest:
            self._queue.release(incarnation, rest, interrupted=False, reason=reason)
