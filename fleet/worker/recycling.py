"""When a worker has served: after so many tasks, so long, or with so much memory."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from fleet.cgroup import MemoryGroup, memory_group
from fleet.clock import boottime
from fleet.worker.settings import WorkerSettings

FULL = 0.9
"""The used share of a control group's limit above which workers that hold more than their share are replaced."""

BETWEEN_LOOKS = 1.0
"""Seconds: a look costs as much as the shortest tasks do."""

_MIB = 1 << 20
_PAGE = resource.getpagesize()
_OWN = Path("/proc/self")


class Service:
    """The limits of one worker's life.

    Args:
        settings: the group's settings.
        group: returns the control group that bounds the worker's memory.
        private: returns the bytes that would be free if this process ended.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        group: Callable[[], MemoryGroup | None] = memory_group,
        private: Callable[[], int] = lambda: private_bytes(),
    ) -> None:
        self._settings = settings
        self._began = boottime()
        self._private = private
        self._group = group()
        self._at_first = private() if self._group is not None and self._group.limit() is not None else 0
        self._look_at = self._began + BETWEEN_LOOKS
        self._crowded = False

    def is_over(self, executed: int) -> bool:
        """Return whether another worker should take this one's place.

        Args:
            executed: tasks that it has executed so far.
        """
        settings = self._settings
        return (
            (settings.max_tasks is not None and executed >= settings.max_tasks)
            or (settings.max_age is not None and boottime() - self._began >= settings.max_age)
            or (executed > 0 and self._holds_too_much())
        )

    def _holds_too_much(self) -> bool:
        most = self._settings.max_memory_mb
        return (most is not None and resident_bytes() >= most * _MIB) or self._is_crowded()

    def _is_crowded(self) -> bool:
        """Return whether the control group is nearly full, and this worker's part in it more than its share."""
        now = boottime()
        if self._group is not None and now >= self._look_at:
            self._look_at = now + BETWEEN_LOOKS
            use = self._group.fullest(above=FULL)
            self._crowded = use is not None and self._private() > self._share_of(use.limit)
        return self._crowded

    def _share_of(self, limit: int) -> float:
        # Twice what it held in the beginning, at least: where even fresh workers are too many, a fresh one in its place
        # would only be the next to go.
        return max(limit / self._settings.processes, 2.0 * self._at_first)


def resident_bytes() -> int:
    """Return the resident memory of this process, 0 where unknown."""
    try:
        return int((_OWN / "statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def private_bytes() -> int:
    """Return what would be free if this process ended (forked workers share much), 0 where unknown."""
    try:
        lines = (_OWN / "smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024
    except (OSError, ValueError, IndexError):
        return 0
