"""What a keeper does again and again: trouble with one duty keeps no other from being done, and is told once."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from fleet.clock import boottime
from fleet.worker.patience import TROUBLE

SHORTEST_RETRY = 0.2
LONGEST_RETRY = 1.0
_log = logging.getLogger("fleet.keeper")


class Duties:
    """Tries duties, and remembers which of them the database lets wait.

    Args:
        probe: asks the database something: a duty that has nothing to do succeeds without it.
    """

    def __init__(self, probe: Callable[[], object]) -> None:
        self._probe = probe
        self._retry_at: dict[str, float] = {}

    def attempt(self, name: str, duty: Callable[[], float | None]) -> float:
        """Do a duty, unless it has just failed; return seconds until it wants to be done again at the latest.

        Args:
            name: which.
            duty: does it; returns such seconds itself, or None.
        """
        if pause := self.pause(name):
            return pause
        try:
            delay = duty()
            if name in self._retry_at:
                self._probe()
        except TROUBLE as error:
            return self._failed(name, error)
        if self._retry_at.pop(name, None) is not None and not self._retry_at:
            _log.info("the database answers again")
        return float("inf") if delay is None else delay

    def pause(self, name: str) -> float:
        """Return seconds until a duty that has failed may be tried again, 0 when it may now."""
        return max(0.0, self._retry_at.get(name, 0.0) - boottime())

    def _failed(self, name: str, error: Exception) -> float:
        if not self._retry_at:
            _log.warning("the database does not answer (%s): %s; trying again", name, error)
        delay = random.uniform(SHORTEST_RETRY, LONGEST_RETRY)
        self._retry_at[name] = boottime() + delay
        return delay
