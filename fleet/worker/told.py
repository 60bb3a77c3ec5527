"""What supervisor and workers have told their keeper, kept until it is written."""

from __future__ import annotations

import logging

from fleet.storage.interfaces import MinuteCount, Storage
from fleet.worker.board import Board
from fleet.worker.deaths import record_death
from fleet.worker.patience import TROUBLE
from fleet.worker.protocol import Death, Link, Message
from fleet.worker.settings import WorkerSettings
from fleet.worker.tally import counts

_log = logging.getLogger("fleet.keeper")


class Told:
    """Messages of the group that the keeper has still to act on.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        supervisor: the socket to the supervisor.
        workers: the socket on which workers are heard.

    Attributes:
        finish: the message with which the group ends; None until then.
        orphaned: whether the supervisor is gone.
    """

    def __init__(self, settings: WorkerSettings, board: Board, supervisor: Link, workers: Link) -> None:
        self._settings = settings
        self._board = board
        self._supervisor = supervisor
        self._workers = workers
        self._deaths: list[Death] = []
        self._drain: Message | None = None
        self._drained: set[str] = set()
        self._stopping = False
        self._counts: list[MinuteCount] = []
        self.finish: Message | None = None
        self.orphaned = False

    @property
    def has_deaths(self) -> bool:
        """Whether ends of workers are to be written."""
        return bool(self._deaths)

    @property
    def drains(self) -> bool:
        """Whether the group is to drain."""
        return self._drain is not None

    def hear_supervisor(self) -> None:
        """Take what the supervisor has sent."""
        for message in self._supervisor.receive():
            if message is None:
                self.orphaned = True
            elif message["kind"] == "died":
                self._deaths.append(Death.from_json(message["death"]))
            elif message["kind"] == "drain":
                self._drain = message
            elif message["kind"] == "finish":
                self.finish = message

    def hear_workers(self) -> list[bool]:
        """Take what workers have sent; return for each that is idle whether it had been woken in vain."""
        idle = []
        for message in self._workers.receive():
            if message is None:
                break
            if message["kind"] == "idle":
                idle.append(bool(message["in_vain"]))
            elif message["kind"] == "counts":
                self._counts += counts(message["rows"])
        return idle

    def write_deaths(self, storage: Storage) -> None:
        """Write how workers ended, and tell the supervisor of each."""
        while self._deaths:
            death = self._deaths[0]
            record_death(storage.registry, death)
            self._deaths.pop(0)
            self._supervisor.send("noted", incarnation=death.incarnation)

    def write_drains(self, storage: Storage) -> None:
        """Flag every worker `terminating`, those that register only now included."""
        if self._drain is None:
            return
        for number, slot in enumerate(self._board.slots):
            reading = slot.read()
            if reading is None or not reading.is_registered or reading.incarnation in self._drained:
                continue
            storage.registry.begin_drain(
                self._settings.worker_name(number),
                incarnation=reading.incarnation,
                reason=self._drain["reason"],
                deadline=self._drain["deadline"],
            )
            self._drained.add(reading.incarnation)
        if not self._stopping:
            # Its workers' places are no supply any more, however long the last of them takes.
            storage.control.stop_group(self._settings.group_id, reason=self._drain["reason"])
            self._stopping = True

    def write_counts(self, storage: Storage) -> None:
        """Add what workers have counted since the last time; what cannot be stored is dropped: it is statistics."""
        told, self._counts = self._counts, []
        if not told:
            return
        try:
            storage.control.add_minutes(told)
        except TROUBLE as error:
            _log.warning("statistics of %d kinds of tasks were not stored: %s", len(told), error)
