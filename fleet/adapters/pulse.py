"""The heartbeat of a standing adapter: a thread, because one command may take longer than the lease."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from fleet.adapters.base import AdapterInfo
from fleet.clock import Clock
from fleet.domain.adapters import Tenure
from fleet.storage.interfaces import Storage

LONGEST_ACT = 300.0
"""Seconds after which an adapter that does not get on beats no more: it hangs, and others take over. One command takes
50 s at most, with all its attempts."""

_log = logging.getLogger("fleet.adapter")


class Pulse:
    """Beats for the length of a block, as long as the block gets on.

    Attributes:
        is_replaced: whether another process stands for the id now.
    """

    def __init__(self, storage: Storage, tenure: Tenure, interval: float, clock: Clock) -> None:
        """Beat not yet.

        Args:
            storage: the store.
            tenure: who beats.
            interval: seconds between two beats.
            clock: for the time since the block got on.
        """
        self.is_replaced = False
        self._storage = storage
        self._tenure = tenure
        self._interval = interval
        self._clock = clock
        self._info: AdapterInfo | None = None
        self._is_told = False
        self._got_on_at = clock.boottime()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beats, name="fleet-pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def gets_on(self, info: AdapterInfo) -> None:
        """Note that the adapter does not hang, and what its place can take."""
        self._info = info
        self._got_on_at = self._clock.boottime()

    def _beats(self) -> None:
        while not self._over.wait(self._interval):
            if self._info is not None and self._clock.boottime() - self._got_on_at < LONGEST_ACT:
                self._beat(self._info)

    def _beat(self, info: AdapterInfo) -> None:
        try:
            if self._storage.adapters.beat(self._tenure, info.limits, info.problem) is None:
                self.is_replaced = True
                self._over.set()
        # Whatever it is, it may pass; where it cannot the adapter's own reads fail as well, and end it.
        except Exception as error:
            if not self._is_told:
                _log.error("no heartbeat: %s: %s", type(error).__name__, error)
            self._is_told = True
        else:
            self._is_told = False
