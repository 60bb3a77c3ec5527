"""Orders to single workers (rows of `worker_command`), which their keeper takes with its beats and carries out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fleet.domain.orders import UNSUPPORTED, OrderKind, OrderRecord
from fleet.process import identify
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.protocol import Channels
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot

CONFLICT = 409
_log = logging.getLogger("fleet.keeper")


class Errands:
    """Takes the orders to the group's workers, carries them out and answers.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        channels: the group's descriptors.
        storage: the store.
    """

    def __init__(self, settings: WorkerSettings, board: Board, channels: Channels, storage: Storage) -> None:
        self._settings = settings
        self._board = board
        self._channels = channels
        self._storage = storage
        own = identify()
        self._taker = f"{own.host}:{own.pid}"

    def run(self) -> None:
        """Do what has been ordered.

        To carry out the same order twice is to carry it out once: an answer that could not be written is given again
        with the next beat, by this keeper or the next.
        """
        readings = ((number, slot.read()) for number, slot in enumerate(self._board.slots))
        living = {seen.incarnation: number for number, seen in readings if seen is not None and seen.is_registered}
        for order in self._storage.orders.take(living, self._taker):
            answer = self._carry_out(order, living[order.incarnation])
            self._storage.orders.answer(order.command_id, **answer)

    def _carry_out(self, order: OrderRecord, number: int) -> Mapping[str, Any]:
        name, slot = self._settings.worker_name(number), self._board.slots[number]
        if order.kind is not OrderKind.RESTART:
            return {"error_code": UNSUPPORTED, "error_message": f"unsupported: {order.kind} is not known here yet"}
        if slot.drain:
            return {"error_code": CONFLICT, "error_message": f"{name} is draining: it ends anyway"}
        _log.info("%s restarts after what it executes: command %d", name, order.command_id)
        self._replace(number, slot)
        return {"reply": {"at": self._storage.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")}}

    def _replace(self, number: int, slot: Slot) -> None:
        slot.replaced = 1
        self._channels.wake(number)
