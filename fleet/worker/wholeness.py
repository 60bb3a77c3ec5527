"""Whether a worker process still has what it needs, after code that is not ours has run in it."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Sequence

EXIT_MUTILATED = 71
CLOSELY = 0.01
_log = logging.getLogger("fleet.worker")


class Wholeness:
    """Watches descriptors that a handler may have closed, with everything else that it found open.

    Args:
        descriptors: those that the worker cannot do without.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._files = tuple((descriptor, _identity(descriptor)) for descriptor in descriptors)
        self._poll = select.poll()
        for descriptor in descriptors:
            self._poll.register(descriptor, 0)
        self._looking = threading.Lock()
        self._looked_at = 0.0

    def check(self, now: float) -> None:
        """End this process where a descriptor is gone or another file's: it can neither record nor deregister.

        That one is gone is seen after each task, by one call of the system; that another file stands in its place, at
        most CLOSELY seconds after.

        Args:
            now: boot time in seconds.
        """
        # One at a time: a poll object refuses a second thread.
        with self._looking:
            events = self._poll.poll(0)
            if now - self._looked_at < CLOSELY and not (events and any(event & select.POLLNVAL for _, event in events)):
                return
            self._looked_at = now
        for descriptor, file in self._files:
            if _identity(descriptor) != file:
                _log.error("the task closed descriptors that its worker needs: this process ends")
                os._exit(EXIT_MUTILATED)


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino
