"""The supervisor's side of its keeper: starts it, replaces it, and keeps what it has to write until that is written."""

from __future__ import annotations

import logging
import os
import signal

from fleet.worker.beats import silence_allowed
from fleet.worker.board import Board
from fleet.worker.children import Launcher
from fleet.worker.protocol import Death, Link, Message
from fleet.worker.record import nanoseconds, now_ns
from fleet.worker.roster import LONG_LIFE, restart_delay

_log = logging.getLogger("fleet.supervisor")


class KeeperPost:
    """Where the keeper of a group stands.

    Args:
        board: the group's shared memory.
        heartbeat: seconds between beats.
    """

    def __init__(self, board: Board, heartbeat: float) -> None:
        self._board = board
        self._silence = silence_allowed(heartbeat)
        # Longer, and others would take the group for lost, since nobody beats for it.
        self._longest_pause = heartbeat
        self._link: Link | None = None
        self._born_at = 0.0
        self._unwritten: dict[str, Death] = {}
        self._drain: Message | None = None
        self._finish: Message | None = None
        self.pid: int | None = None
        self.start_at: float | None = 0.0
        self.known = False
        self.finished = False
        self.short_lives = 0

    def fileno(self) -> int | None:
        """Return the descriptor of the socket to the keeper, None while there is no keeper."""
        return self._link.fileno() if self._link else None

    def start_if_due(self, launcher: Launcher, now: float) -> None:
        """Start a keeper by `launcher` if there is none and it is time (boot seconds)."""
        if self.pid is not None or self.start_at is None or now < self.start_at:
            return
        own, theirs = Link.pair()
        self._link = own
        self._board.keeper_pulse = now_ns()
        self.pid = launcher.start_keeper(theirs, self.known)
        theirs.close()
        self._born_at = now
        for death in self._unwritten.values():
            own.send("died", death=death.as_json())
        for order in (self._drain, self._finish):
            if order is not None:
                own.send(**order)

    def receive(self) -> list[Message]:
        """Return what the keeper says; it is known to the database once it has said `go`."""
        messages = [message for message in self._link.receive() if message is not None] if self._link else []
        for message in messages:
            if message["kind"] == "noted":
                self._unwritten.pop(message["incarnation"], None)
            elif message["kind"] == "go":
                self.known = True
        return messages

    def report(self, death: Death) -> None:
        """Have a death written."""
        self._unwritten[death.incarnation] = death
        if self._link:
            self._link.send("died", death=death.as_json())

    def owes(self, worker_id: str) -> bool:
        """Return whether the end of a worker of this id is still to be written."""
        return any(death.worker_id == worker_id for death in self._unwritten.values())

    def drain(self, reason: str, deadline: float | None) -> None:
        """Have all workers flagged; `deadline` in seconds from now."""
        self._drain = {"kind": "drain", "reason": reason, "deadline": deadline}
        if self._link:
            self._link.send(**self._drain)

    def finish(self, exit_code: int) -> None:
        """Have the group's end written; the keeper then ends."""
        self._finish = {"kind": "finish", "exit_code": exit_code}
        if self._link:
            self._link.send(**self._finish)

    def ended(self, exit_code: int | None, now: float) -> None:
        """Note that the keeper's process is gone; the next is started at once, and later and later if it dies young.

        One that was told to finish and exits with 0 is the last.
        """
        self.pid = None
        self.finished = self._finish is not None and exit_code == 0
        if self._link:
            self._link.close()
            self._link = None
        self.short_lives = 0 if now - self._born_at > LONG_LIFE else self.short_lives + 1
        self.start_at = now + min(restart_delay(self.short_lives - 1), self._longest_pause)

    def kill_if_stuck(self, awake: float) -> None:
        """Kill a keeper without a pulse, unless this host has just slept (`awake`: seconds since it did)."""
        if self.pid is None or awake < self._silence:
            return
        if now_ns() - self._board.keeper_pulse > nanoseconds(self._silence):
            _log.warning("the keeper has shown no life for %.0f s: replacing it", self._silence)
            self._board.keeper_pulse = now_ns()
            self.kill()

    def kill(self) -> None:
        """Kill the keeper, if there is one; its end is noted when it is reaped."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
