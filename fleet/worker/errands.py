"""Orders to single workers (rows of `worker_command`), which their keeper takes and carries out."""

from __future__ import annotations

import logging
from collections.abc import Collection

from fleet import process
from fleet.clock import boottime
from fleet.domain.lanes import Lane
from fleet.domain.orders import (
    BUSY,
    CONFLICT,
    INCAPABLE,
    OrderAnswer,
    OrderKind,
    OrderRecord,
    refusal,
)
from fleet.faultpoints import reach
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.condition import condition_of
from fleet.worker.glances import WHILE_EXECUTING
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot

_log = logging.getLogger("fleet.keeper")


class Errands:
    """Takes the orders to the group's workers, carries them out and answers.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        channels: the group's descriptors.
        storage: the store.
        handlers: names of what the group's workers execute.
    """

    def __init__(
        self, settings: WorkerSettings, board: Board, channels: Channels, storage: Storage, handlers: Collection[str]
    ) -> None:
        self._settings = settings
        self._board = board
        self._channels = channels
        self._storage = storage
        self._handlers = dict.fromkeys(handlers)
        own = process.identify()
        self._taker = f"{own.host}:{own.pid}"
        self._look_at = 0.0

    def run(self) -> None:
        """Do what has been ordered.

        To carry out the same order twice is to carry it out once: an answer that could not be written is given again
        at the next look, by this keeper or the next.
        """
        self._look_at = boottime() + WHILE_EXECUTING
        readings = ((number, slot.read()) for number, slot in enumerate(self._board.slots))
        living = {seen.incarnation: number for number, seen in readings if seen is not None and seen.is_registered}
        for order in self._storage.orders.take(living, self._taker):
            reach("order.taken")
            answer = self._carry_out(order, living[order.incarnation])
            reach("order.carried-out")
            if answer is not None:
                self._storage.orders.answer(
                    order.command_id,
                    reply=answer.reply,
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                )

    def run_while_executing(self) -> float:
        """Look once a second while something is executed, when nobody listens for commits; return seconds until then.

        So a worker whose handler hangs can be asked what it does.
        """
        if not any(slot.executing for slot in self._board.slots):
            return float("inf")
        if boottime() >= self._look_at:
            self.run()
        return max(0.0, self._look_at - boottime())

    def _carry_out(self, order: OrderRecord, number: int) -> OrderAnswer | None:
        """Return how to answer; None when that is done already, or is to be done later."""
        match order.kind:
            case OrderKind.RESTART:
                return self._restart(order, number)
            case OrderKind.GET_STATUS:
                found = condition_of(self._board.slots[number], self._settings.worker_name(number), self._now())
                return None if found is None else OrderAnswer(found)
            case OrderKind.CANCEL_TASK:
                fence = self._storage.orders.cancel_task(order.command_id)
                if fence is not None:
                    self._board.slots[number].cancel(fence)
                return None
            case OrderKind.SET_TASK:
                return self._set_task(order, number)

    def _restart(self, order: OrderRecord, number: int) -> OrderAnswer:
        name, slot = self._settings.worker_name(number), self._board.slots[number]
        if slot.drain:
            return refusal(CONFLICT, f"{name} is draining: it ends anyway")
        _log.info("%s restarts after what it executes: command %d", name, order.command_id)
        slot.replaced = 1
        self._channels.wake(number)
        return OrderAnswer({"at": self._now()})

    def _set_task(self, order: OrderRecord, number: int) -> OrderAnswer | None:
        """Assign a task to a worker, and wake it until it has claimed that."""
        orders = self._storage.orders
        if order.assigned_token is not None and orders.follow(order.command_id):
            return None
        refused = self._refusal(order, number)
        if refused is not None:
            return refused
        lane = None if order.assigned_token is not None else orders.assign(order.command_id)
        if lane is not None:
            self._board.slots[number].lane = lane
        if lane is not None or order.assigned_token is not None:
            self._channels.wake(number)
        return None

    def _refusal(self, order: OrderRecord, number: int) -> OrderAnswer | None:
        """Return why a worker will not claim a task; None when it will, as far as the keeper can tell."""
        name, slot = self._settings.worker_name(number), self._board.slots[number]
        if slot.drain or slot.replaced:
            return refusal(CONFLICT, f"{name} is to end: it claims nothing more")
        if order.assigned_token is not None:
            return None
        if not self._serves(order, number):
            return refusal(INCAPABLE, f"{name} does not serve the queue, the handler, or what the task requires")
        if not order.arguments.get("when_free") and self._is_full(slot):
            return refusal(BUSY, f"{name} is busy: it has no free slot")
        return None

    def _serves(self, order: OrderRecord, number: int) -> bool:
        """Return whether a worker can execute a task; what is no task is refused by the store."""
        task = None if order.task_id is None else self._storage.queue.get(order.task_id)
        if task is None:
            return True
        lane = Lane(0, task.queue, task.task, task.requires)
        return self._settings.offer(number, self._handlers).serves(lane)

    def _is_full(self, slot: Slot) -> bool:
        seen = slot.read()
        return seen is None or len(seen.held) >= self._settings.concurrency

    def _now(self) -> str:
        return self._storage.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
