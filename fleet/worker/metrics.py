"""What workers use, measured by their keeper at each beat; whatever cannot be measured is left out, and fails nothing.

Host figures are read once for all workers of a beat.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from fleet import process
from fleet.cgroup import mebibytes, memory_group
from fleet.clock import Clock, boottime
from fleet.worker.record import Reading
from fleet.worker.settings import WorkerSettings

WINDOW = 600.0
"""Seconds over which done and failed tasks are told."""

_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(slots=True)
class _Sample:
    at: float
    done: int
    failed: int


@dataclass(slots=True)
class _Life:
    """What is remembered of one worker process between two beats; times in boot seconds."""

    pid: int
    born_at: float
    process: psutil.Process | None = None
    cpu: tuple[float, float] | None = None
    samples: deque[_Sample] = field(default_factory=deque)


class Meter:
    """Measures the workers of a group.

    Args:
        settings: the group's settings.
        folder: where the database's file lies, None for a server: then the disk of the log, or of this process, counts.
        clock: the time for rows.
    """

    def __init__(self, settings: WorkerSettings, folder: Path | None, clock: Clock) -> None:
        self._settings = settings
        self._folder = folder or Path(settings.log_path or "log").absolute().parent
        self._clock = clock
        self._lives: dict[int, _Life] = {}
        self._shared: dict[str, Any] = {}
        self._now = boottime()
        self._wall = clock.now()

    def look(self) -> None:
        """Read what is the same for all workers: the time, the host, the limit."""
        self._now, self._wall = boottime(), self._clock.now()
        self._shared = {
            "at": _stamp(self._wall),
            **_measured("memory_limit_mb", lambda: memory_limit_mb(self._settings)),
            "host": {**_load(), **_memory(), **_disk(self._folder)},
        }

    def measure(self, number: int, reading: Reading) -> Mapping[str, Any]:
        """Return what one worker uses, with what `look` read.

        Args:
            number: its slot.
            reading: its record.
        """
        life = self._life(number, reading)
        return {**self._shared, **self._usage(life), **self._recent(life, reading), **self._task_since(reading)}

    def _life(self, number: int, reading: Reading) -> _Life:
        life = self._lives.get(number)
        if life is None or life.pid != reading.pid:
            life = self._lives[number] = _Life(reading.pid, _born_at(reading.pid, self._now))
        return life

    def _usage(self, life: _Life) -> dict[str, Any]:
        try:
            if life.process is None:
                life.process = psutil.Process(life.pid)
            seconds = _cpu_seconds(life.process)
            found: dict[str, Any] = {"rss_mb": mebibytes(life.process.memory_info().rss)}
        except (psutil.Error, OSError, ValueError):
            return {}
        before, life.cpu = life.cpu or (life.born_at, 0.0), (self._now, seconds)
        if self._now > before[0]:
            # What an orphan had used is lost with it, so the sum can be less than it was.
            found["cpu_percent"] = round(100 * max(0.0, seconds - before[1]) / (self._now - before[0]), 1)
        return found

    def _recent(self, life: _Life, reading: Reading) -> dict[str, Any]:
        samples = life.samples
        if not samples:
            # Counts of a younger process are all of the window; what an older one did before is not known to be recent.
            young = self._now - life.born_at <= WINDOW
            samples.append(_Sample(life.born_at, 0, 0) if young else _Sample(self._now, reading.done, reading.failed))
        samples.append(_Sample(self._now, reading.done, reading.failed))
        while len(samples) > 2 and samples[1].at <= self._now - WINDOW:
            samples.popleft()
        first = samples[0]
        seconds = round(min(WINDOW, self._now - first.at), 1)
        return {
            "recent": {"seconds": seconds, "done": reading.done - first.done, "failed": reading.failed - first.failed}
        }

    def _task_since(self, reading: Reading) -> dict[str, Any]:
        if not reading.running:
            return {"task_since": None}
        ago = max(0.0, self._now - reading.running[0].started / 1e9)
        return {"task_since": _stamp(self._wall - timedelta(seconds=ago))}


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _measured(name: str, measure: Callable[[], Any]) -> dict[str, Any]:
    """Return a figure under its name; nothing where it cannot be had, whatever is strange about this host."""
    try:
        return {name: measure()}
    except Exception:
        return {}


def _born_at(pid: int, now: float) -> float:
    """Return when a process was started, in boot seconds; `now` where that cannot be read."""
    ticks = process.start_ticks(pid)
    return now if ticks is None else min(now, ticks / _TICK)


def _cpu_seconds(worker: psutil.Process) -> float:
    """Return the CPU time of a worker, of its children that have ended, and of those that run."""
    times = worker.cpu_times()
    own = float(times.user + times.system + times.children_user + times.children_system)
    return own + sum(_cpu_of(pid) for pid in _descendants(worker.pid))


def _cpu_of(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    except (psutil.Error, OSError, ValueError):
        return 0.0


def _descendants(pid: int) -> list[int]:
    """Return the children of a process's main thread, theirs included: to look at every process would cost too much."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            text = (_PROC / f"{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        children = [int(child) for child in text.split()]
        found += children
        waiting += children
    return found


def _load() -> dict[str, Any]:
    return {**_measured("load_1m", lambda: round(os.getloadavg()[0], 2)), **_measured("cpus", os.cpu_count)}


def _memory() -> dict[str, Any]:
    try:
        memory = psutil.virtual_memory()
        return {"memory_available_mb": mebibytes(memory.available), "memory_total_mb": mebibytes(memory.total)}
    except Exception:
        return {}


def _disk(folder: Path) -> dict[str, Any]:
    try:
        disk = psutil.disk_usage(str(folder))
        # What is kept for root is not free.
        usable = disk.used + disk.free
        percent = {"disk_free_percent": round(100 * disk.free / usable, 1)} if usable else {}
        return {"disk_free_mb": mebibytes(disk.free), **percent}
    except Exception:
        return {}


def memory_limit_mb(settings: WorkerSettings) -> float | None:
    """Return how much memory a worker may have: the smaller of its own limit and its control group's, None for none."""
    group = memory_group()
    limit = group.limit() if group is not None else None
    limits = [] if limit is None else [mebibytes(limit)]
    return min(limits if settings.max_memory_mb is None else [*limits, float(settings.max_memory_mb)], default=None)


@cache
def host_facts() -> Mapping[str, Any]:
    """Return what does not change while a worker lives: CPUs, memory, Python, platform."""
    system = os.uname()
    return {
        **_measured("cpus", os.cpu_count),
        **{name: value for name, value in _memory().items() if name == "memory_total_mb"},
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": "-".join((system.sysname, system.release, system.machine)),
    }


def resources(settings: WorkerSettings) -> Mapping[str, Any]:
    """Return what a worker has to work with, as it registers."""
    return {**host_facts(), **_measured("memory_limit_mb", lambda: memory_limit_mb(settings))}
