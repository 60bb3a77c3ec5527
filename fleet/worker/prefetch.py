"""How many tasks one claim should bring."""

from __future__ import annotations

from fleet.domain.task import MAX_BATCH

BATCH_SECONDS = 0.05
"""The work that one claim brings, when its size adapts: more gains nothing and keeps others from it."""

LEAST_OVERLAPPED = 200
"""Tasks that fill that time where it is worth while to write while executing: writing takes a tenth of it then."""

_WEIGHT = 0.3


class Prefetch:
    """Sizes claims so that a batch is about 50 ms of work, by a moving average of measured executions.

    Args:
        fixed: always so many; None adapts, beginning with one.
        most: no more than so many, where it adapts.
        overlapping: whether the next batch may be claimed while one is executed: then both are that much work.
    """

    def __init__(self, fixed: int | None = None, most: int = MAX_BATCH, overlapping: bool = False) -> None:
        self._overlapping = overlapping and fixed is None
        self._fixed = fixed
        self._most = most
        self._mean: float | None = None
        self._last = 0

    def size(self) -> int:
        """Return how many tasks to claim; at most twice as many as before, since one measurement says little."""
        if self._fixed is not None:
            return self._fixed
        if self._mean is None:
            return 1
        seconds = BATCH_SECONDS / 2 if self.overlaps else BATCH_SECONDS
        fitting = self._most if self._mean * self._most <= seconds else int(seconds / self._mean)
        self._last = max(1, min(fitting, 2 * max(self._last, 1)))
        return self._last

    @property
    def overlaps(self) -> bool:
        """Whether tasks are so small that the next are to be claimed while these are executed."""
        return self._overlapping and self._mean is not None and self._mean * LEAST_OVERLAPPED <= BATCH_SECONDS

    def learn(self, seconds: float) -> None:
        """Take note of how long one execution took."""
        self._mean = seconds if self._mean is None else self._mean + _WEIGHT * (seconds - self._mean)
