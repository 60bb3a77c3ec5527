"""What a worker uses of its host, measured by its keeper at each beat: cheap enough to be always on."""

from __future__ import annotations

import os
import platform
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from fleet.cgroup import MIB, memory_group
from fleet.clock import SystemClock, boottime
from fleet.worker.record import Reading

RECENT = 600.0
"""Seconds that count as lately: what was done and failed in them is told with each beat."""

_PROC = Path("/proc")
_KEPT = 120
"""Points of the past that are kept for that: one for each 5 s."""


@dataclass
class _Past:
    """What was seen of one life of a worker before.

    Attributes:
        process: its process.
        measured_at: when CPU time was read last, in boot seconds.
        cpu_seconds: what it was then.
        counts: (boot seconds, done, failed) at earlier beats, oldest first.
    """

    process: psutil.Process
    measured_at: float | None = None
    cpu_seconds: float = 0.0
    counts: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=_KEPT))


class Metrics:
    """Measures the workers of a group.

    Args:
        disk: a directory of the file system whose free space counts.
        max_memory_mb: the limit of a worker's memory that was asked for, None for none.
        inherits: whether the workers that are there at first have worked before: what they did then is not lately.
    """

    def __init__(self, disk: Path, max_memory_mb: int | None, inherits: bool) -> None:
        self._disk = disk
        self._clock = SystemClock()
        self._memory_limit_mb = memory_limit_mb(max_memory_mb)
        self._inherits = inherits
        self._past: dict[str, _Past] = {}

    def measure(self, readings: Iterable[Reading]) -> dict[str, dict[str, Any]]:
        """Return what is to be told of each worker, by incarnation; what cannot be measured is left out.

        Args:
            readings: the workers' records.
        """
        host, now = self._host(), self._clock.now()
        past, self._past = self._past, {}
        found = {
            reading.incarnation: self._worker(reading, past.get(reading.incarnation), host, now) for reading in readings
        }
        self._inherits = False
        return found

    def _host(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {"cpus": os.cpu_count()}
        try:
            memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(self._disk))
            found["load_1m"] = round(os.getloadavg()[0], 2)
        except (OSError, psutil.Error):
            return found
        return {
            **found,
            "memory_available_mb": round(memory.available / MIB),
            "memory_total_mb": round(memory.total / MIB),
            "disk_free_mb": round(disk.free / MIB),
            "disk_free_percent": round(100.0 - disk.percent, 1),
        }

    def _worker(self, reading: Reading, past: _Past | None, host: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        found: dict[str, Any] = {"at": _text(now), "host": host, "memory_limit_mb": self._memory_limit_mb}
        try:
            past = past or self._first(reading)
            self._past[reading.incarnation] = past
            found |= _used(past)
        except (OSError, psutil.Error):
            # It may just have ended; its death is told by others.
            past = None
        if past is not None:
            found["recent"] = _recent(past, reading)
        if reading.running:
            since = timedelta(seconds=boottime() - reading.running[0].started / 1e9)
            found["task_since"] = _text(now - since)
        return found

    def _first(self, reading: Reading) -> _Past:
        past = _Past(psutil.Process(reading.pid))
        past.counts.append((boottime(), reading.done, reading.failed) if self._inherits else (boottime(), 0, 0))
        return past


def resident_mb(pid: int) -> float | None:
    """Return the MiB that a process holds in memory, None when that cannot be told."""
    try:
        return round(psutil.Process(pid).memory_info().rss / MIB, 1)
    except (OSError, psutil.Error):
        return None


def _used(past: _Past) -> dict[str, Any]:
    """Return memory, and the share of a CPU since the last time: what a worker has started is in it, ended or not."""
    with past.process.oneshot():
        times, memory = past.process.cpu_times(), past.process.memory_info()
    now, seconds = boottime(), sum(times[:4]) + sum(map(_cpu_seconds, _descendants(past.process.pid)))
    before, past.measured_at = past.measured_at, now
    used, past.cpu_seconds = seconds - past.cpu_seconds, seconds
    found: dict[str, Any] = {"rss_mb": round(memory.rss / MIB, 1)}
    if before is not None and now > before:
        found["cpu_percent"] = round(max(0.0, used) / (now - before) * 100, 1)
    return found


def _cpu_seconds(pid: int) -> float:
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    except (OSError, psutil.Error):
        return 0.0


def _descendants(pid: int) -> list[int]:
    """Return the children of a process's main thread, theirs included: to look at every process would cost too much."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            children = [int(child) for child in (_PROC / f"{parent}/task/{parent}/children").read_text().split()]
        except OSError:
            continue
        found += children
        waiting += children
    return found


def _recent(past: _Past, reading: Reading) -> dict[str, Any]:
    now = boottime()
    if now - past.counts[-1][0] >= RECENT / _KEPT:
        past.counts.append((now, reading.done, reading.failed))
    while len(past.counts) > 1 and now - past.counts[0][0] > RECENT:
        past.counts.popleft()
    _, done, failed = past.counts[0]
    return {"seconds": RECENT, "done": reading.done - done, "failed": reading.failed - failed}


@cache
def facts(max_memory_mb: int | None) -> dict[str, Any]:
    """Return what does not change about this process's host, for the registration."""
    return {
        "cpus": os.cpu_count(),
        "memory_total_mb": round(psutil.virtual_memory().total / MIB),
        "memory_limit_mb": memory_limit_mb(max_memory_mb),
        "python": platform.python_version(),
        "platform": sys.platform,
    }


def memory_limit_mb(asked_for: int | None) -> float | None:
    """Return the smaller one of the limit that was asked for and the control group's, in MiB; None without any."""
    group = memory_group()
    limits = [asked_for, None if group is None else group.limit_mb]
    return min((float(limit) for limit in limits if limit is not None), default=None)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
