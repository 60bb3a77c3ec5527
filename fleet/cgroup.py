"""The control group whose memory limit this process lives under: how much is used, and whom the kernel has killed.

Both versions are read (v1: `memory.limit_in_bytes`, v2: `memory.max`). A limit may stand at any level above the
process; the one that is fullest is the one that will be felt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

UNLIMITED = 1 << 60
"""Bytes from which on a limit is none: v1 says so by the largest number of pages that it knows."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of one version are called."""

    limit: str
    usage: str
    inactive: str
    events: str


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
_V2 = _Files("memory.max", "memory.current", "inactive_file", "memory.events")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How full a limit is, in bytes.

    Attributes:
        limit: what is allowed.
        used: what is used, without files that the kernel can forget.
    """

    limit: int
    used: int

    @property
    def share(self) -> float:
        """The used part of the limit."""
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The control group of a process, and those above it.

    Attributes:
        levels: their directories, the process's own first.
        files: what their files are called.
    """

    levels: tuple[Path, ...]
    files: _Files

    def limit(self) -> int | None:
        """Return the smallest limit in bytes, None where there is none."""
        return min((limit for _, limit in self._limits()), default=None)

    def fullest(self, above: float = 0.0) -> MemoryUse | None:
        """Return the limit that is fullest; None where there is none, or none is used beyond the share `above`."""
        uses = (self._use(level, limit, above) for level, limit in self._limits())
        return max((use for use in uses if use is not None and use.share > above), key=_share, default=None)

    def kills(self) -> int | None:
        """Return how often the kernel has killed in this group because its memory ran out, None where unknown."""
        return _entry(self.levels[0] / self.files.events, "oom_kill")

    def _limits(self) -> Iterator[tuple[Path, int]]:
        for level in self.levels:
            limit = _number(level / self.files.limit)
            if limit is not None and 0 < limit < UNLIMITED:
                yield level, limit

    def _use(self, level: Path, limit: int, above: float) -> MemoryUse | None:
        used = _number(level / self.files.usage)
        if used is None:
            return None
        if used <= above * limit:
            return MemoryUse(limit, used)
        # Read only where it matters: the kernel sums it up for the whole group.
        return MemoryUse(limit, max(0, used - (_entry(level / "memory.stat", self.files.inactive) or 0)))


def _share(use: MemoryUse) -> float:
    return use.share


@cache
def memory_group(proc: Path = Path("/proc/self")) -> MemoryGroup | None:
    """Return the control group that accounts for a process's memory; None where there is none, or no telling.

    Args:
        proc: the process's directory in /proc; looked at once, and forked children are in the same group.
    """
    try:
        names = _names((proc / "cgroup").read_text())
        mounts = list(_mounts((proc / "mountinfo").read_text()))
    except (OSError, ValueError, IndexError):
        return None
    for version, controller in ((_V1, "memory"), (_V2, "")):
        for found, root, mount in mounts:
            if found == controller and controller in names:
                levels = tuple(_levels(mount, root, names[controller], version))
                if levels:
                    return MemoryGroup(levels, version)
    return None


def _names(text: str) -> dict[str, str]:
    """Return the process's group by controller; the unified hierarchy's has the name ""."""
    names = {}
    for line in text.splitlines():
        number, controllers, name = line.split(":", 2)
        names.update(dict.fromkeys(controllers.split(",") if number != "0" else [""], name))
    return names


def _mounts(text: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the hierarchies that can account for memory: controller, root, where it is mounted."""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, *options) = left.split(), right.split()
        if kind == "cgroup2":
            yield "", fields[3], Path(fields[4])
        elif kind == "cgroup" and "memory" in options[-1].split(","):
            yield "memory", fields[3], Path(fields[4])


def _levels(mount: Path, root: str, name: str, files: _Files) -> Iterator[Path]:
    """Yield the group's directory and those above it that account for memory, as far as they can be seen.

    In a container the hierarchy is often mounted from the container's own group on, while the name is the host's.
    """
    inside = os.path.relpath(name, root) if name.startswith(root) else "."
    level = mount / inside
    if ".." in level.parts or not level.is_dir():
        level = mount
    while True:
        if (level / files.usage).exists():
            yield level
        if level == mount or mount not in level.parents:
            return
        level = level.parent


def _number(path: Path) -> int | None:
    """Return the number that a file holds, None for `max` and for what cannot be read."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _entry(path: Path, name: str) -> int | None:
    """Return the number of an entry in a file of lines `name number`, None where there is none."""
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        return None
    return None


def mebibytes(size: float) -> float:
    """Return bytes as MiB, with one decimal."""
    return round(size / _MIB, 1)
