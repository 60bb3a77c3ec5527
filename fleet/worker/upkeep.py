"""The keeper's share of the fleet's maintenance: no central process is needed for recovery."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from fleet import maintenance
from fleet.clock import SystemClock, boottime
from fleet.domain.liveness import MAINTENANCE_INTERVAL, ProcessIdentity
from fleet.process import identify, is_dead
from fleet.storage.interfaces import Holder, Storage
from fleet.worker.board import Board

PAUSE_IN_A_BACKLOG = 0.5
"""Seconds between passes of which each leaves work to the next: what a fleet ends in a time must be pruned in it."""

_log = logging.getLogger("fleet.keeper")


class Upkeep:
    """Makes maintenance passes when they are due.

    Args:
        storage: the store.
        board: the group's shared memory.
        between: called in the pauses of a pass, which may take longer than a heartbeat.

    Attributes:
        due_at: when the next pass is due, in boot seconds.
    """

    def __init__(self, storage: Storage, board: Board, between: Callable[[], None]) -> None:
        self._storage = storage
        self._board = board
        self._clock = _FilledClock(between)
        self.due_at = boottime() + random.uniform(0.0, MAINTENANCE_INTERVAL / 2)
        self._interval = MAINTENANCE_INTERVAL

    def put_off(self) -> None:
        """Judge nobody for a while: when beats fail, the others wait too, and need time for theirs afterwards."""
        self.due_at = max(self.due_at, boottime() + MAINTENANCE_INTERVAL / 2)

    def run(self) -> None:
        """Make a pass, unless another process has just made one."""
        self.due_at = boottime() + MAINTENANCE_INTERVAL * random.uniform(1.0, 1.1)
        own = identify()
        holder = Holder(f"{own.host}:{own.pid}", own)
        interval, self._interval = self._interval, MAINTENANCE_INTERVAL
        report = maintenance.run_pass(self._storage, holder, self._proven_dead, self._clock, interval)
        if report is None:
            # Asked too early, or another has just passed and may be gone by the next time: two intervals without a pass
            # would count as a gap in which nobody watched, and forgive whoever is lost for another lease.
            self.due_at = boottime() + MAINTENANCE_INTERVAL / 4
            return
        if report.is_cut_short:
            self._interval = PAUSE_IN_A_BACKLOG
            self.due_at = boottime() + PAUSE_IN_A_BACKLOG
        for line in (*report.rescued, *report.expired, *report.cared):
            _log.warning("%s", line)
        for line in report.errors:
            _log.error("%s", line)

    def _proven_dead(self, process: ProcessIdentity) -> bool:
        """Return whether a process is gone; of the group's own, its supervisor tells how they ended."""
        return process.pid not in {slot.pid for slot in self._board.slots} and is_dead(process)


class _FilledClock(SystemClock):
    """A clock whose pauses are used.

    Args:
        between: called before each pause.
    """

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between

    def sleep(self, seconds: float) -> None:
        """Use the pause, then wait."""
        self._between()
        super().sleep(seconds)
