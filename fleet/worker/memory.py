"""When a worker has grown so large that another should take its place."""

from __future__ import annotations

import resource
from functools import cache
from pathlib import Path

from fleet.cgroup import MemoryGroup, memory_group
from fleet.clock import boottime

FULL = 0.9
"""Share of a control group's limit beyond which its largest workers are replaced, before the kernel kills one."""

BETWEEN_LOOKS = 1.0
"""Seconds between two looks at the control group, as long as this process does not grow: to look takes as long as a
small task."""

GROWTH_KB = 8_192
"""Growth of this process in KiB after which its control group is looked at, whatever the time."""

_PAGE_MB = resource.getpagesize() / 1_048_576


class Memory:
    """The memory of this process against its limits.

    Args:
        max_mb: the limit that was asked for, in MiB of resident memory; None for none.
        workers: how many workers share the control group.
    """

    def __init__(self, max_mb: int | None, workers: int) -> None:
        self._max_mb = max_mb
        self._workers = workers
        self._group = _own_group()
        self._at_first_mb = 0.0 if self._group is None else private_mb()
        self._look_at = 0.0
        self._peak_kb = 0

    def is_too_much(self) -> bool:
        """Return whether this process should be replaced: at its own limit, or where its control group is nearly full.

        Of a full group those go that hold more than their share of the limit, and have grown to twice what they began
        with: where even fresh workers are too many, a fresh one in its place would only be the next to go.
        """
        if self._max_mb is not None and resident_mb() >= self._max_mb:
            return True
        if self._group is None or not self._is_time_to_look():
            return False
        limit, used = self._group.limit_mb, self._group.used_mb
        if limit is None or used is None or used < FULL * limit:
            return False
        # One share more, for supervisor and keeper. What forked workers share would not be free if one of them ended.
        return private_mb() >= max(limit / (self._workers + 1), 2 * self._at_first_mb)

    def _is_time_to_look(self) -> bool:
        now, peak_kb = boottime(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if now < self._look_at and peak_kb < self._peak_kb + GROWTH_KB:
            return False
        self._look_at, self._peak_kb = now + BETWEEN_LOOKS, peak_kb
        return True


@cache
def _own_group() -> MemoryGroup | None:
    # A worker is in its supervisor's group, which has looked before.
    return memory_group()


def private_mb() -> float:
    """Return the memory in MiB that would be free if this process ended, 0 where unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
    except (OSError, ValueError, IndexError):
        return 0.0


def resident_mb() -> float:
    """Return the resident memory of this process in MiB, 0 where unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_MB
    except OSError:
        return 0.0
