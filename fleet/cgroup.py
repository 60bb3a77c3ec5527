"""The memory limit of the control group that a process lives in, as containers and services have one (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_UNLIMITED = 1 << 60
"""Version 1 says "no limit" by a number close to the largest one."""

MIB = 1_048_576


@dataclass(frozen=True)
class MemoryGroup:
    """A control group with a limit of memory.

    Attributes:
        directory: its directory.
        limit_file: which of its files holds the limit in bytes.
        usage_file: which holds what is used now.
    """

    directory: Path
    limit_file: str
    usage_file: str

    @cached_property
    def limit_mb(self) -> float | None:
        """The limit in MiB, None without one."""
        value = _number(self.directory / self.limit_file)
        return None if value is None or value >= _UNLIMITED else value / MIB

    @property
    def used_mb(self) -> float | None:
        """What is used in MiB, without what the kernel could drop at once (inactive file pages); None if unknown."""
        used = _number(self.directory / self.usage_file)
        if used is None:
            return None
        fields = _fields(self.directory / "memory.stat")
        return max(0, used - fields.get("total_inactive_file", fields.get("inactive_file", 0))) / MIB

    @property
    def kills(self) -> int | None:
        """How many processes the kernel has killed here for want of memory; None if unknown."""
        for name in ("memory.events", "memory.oom_control"):
            fields = _fields(self.directory / name)
            if "oom_kill" in fields:
                return fields["oom_kill"]
        return None


def memory_group(pid: int | str = "self") -> MemoryGroup | None:
    """Return the innermost control group of a process that has a memory limit; None where there is none.

    Args:
        pid: the process, or "self".
    """
    return next((group for group in _groups(pid) if group.limit_mb is not None), None)


def out_of_memory_kills(pid: int | str = "self") -> int | None:
    """Return how many processes the kernel has killed for want of memory in a process's control group; None if unknown.

    Args:
        pid: the process, or "self".
    """
    counts = (group.kills for group in _groups(pid))
    return next((kills for kills in counts if kills is not None), None)


def _groups(pid: int | str) -> Iterator[MemoryGroup]:
    """Yield the control groups that a process is in, the innermost first."""
    for directory, limit, usage in _candidates(pid):
        while _ROOT in (directory, *directory.parents):
            yield MemoryGroup(directory, limit, usage)
            directory = directory.parent


def _candidates(pid: int | str) -> list[tuple[Path, str, str]]:
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found.append((_ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes", "memory.usage_in_bytes"))
        elif not controllers:
            found.append((_ROOT / path.lstrip("/"), "memory.max", "memory.current"))
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        # `max` is no number: there is no limit.
        return None


def _fields(path: Path) -> dict[str, int]:
    try:
        pairs = (line.split() for line in path.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    except OSError:
        return {}
