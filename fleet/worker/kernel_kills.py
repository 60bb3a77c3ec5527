"""Whether the kernel has killed a worker because memory ran out: its control group counts such kills."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable

from fleet.clock import Clock
from fleet.worker.reaping import Exit

LATELY = 5.0
"""Seconds within which a worker that the kernel has killed is reaped, however busy the host is."""

BETWEEN_LOOKS = 1.0


class KernelKills:
    """Tells kills for want of memory from others, by the count that their control group keeps.

    The count names nobody. A command of a task that was killed raises it too, so only a rise of the last seconds
    explains a death, and each kill one of them.

    Args:
        count: returns how often the kernel has killed in the workers' control group, None where it does not say.
        clock: for the age of what was seen.
    """

    def __init__(self, count: Callable[[], int | None], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._explained: deque[float] = deque()
        self.look()

    def look(self) -> None:
        """Note the count, at most once a second."""
        now = self._clock.boottime()
        if self._seen and now - self._seen[-1][0] < BETWEEN_LOOKS:
            return
        kills = self._count()
        if kills is None:
            return
        self._seen.append((now, kills))
        while len(self._seen) > 1 and self._seen[1][0] <= now - LATELY:
            self._seen.popleft()

    def explain(self, ended: Exit) -> bool:
        """Return whether a worker whose end nobody here has ordered was killed by the kernel, for want of memory."""
        kills = self._count() if ended.signal == signal.SIGKILL else None
        if kills is None or not self._seen:
            return False
        since, before = self._seen[0]
        while self._explained and self._explained[0] < since:
            self._explained.popleft()
        if kills - before <= len(self._explained):
            return False
        self._explained.append(self._clock.boottime())
        return True
