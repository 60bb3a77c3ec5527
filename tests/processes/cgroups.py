"""A real control group with a limit of memory, for the processes of a test; made by root alone."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes.running import wait_until

_VERSION_1 = Path("/sys/fs/cgroup/memory")
_VERSION_2 = Path("/sys/fs/cgroup")


@contextmanager
def memory_limit(megabytes: int) -> Iterator[Path | None]:
    """Make a group whose processes may use so much; yield the file into which a process writes itself to join.

    Yields None where this user cannot make one, or the kernel has no memory controller.
    """
    version_1 = (_VERSION_1 / "memory.limit_in_bytes").exists()
    parent = _VERSION_1 if version_1 else _VERSION_2
    directory = parent / f"fleet-test-{uuid.uuid4().hex[:8]}"
    try:
        directory.mkdir()
        limit = directory / ("memory.limit_in_bytes" if version_1 else "memory.max")
        limit.write_text(str(megabytes << 20))
    except OSError:
        if directory.exists():
            directory.rmdir()
        yield None
        return
    try:
        yield directory / "cgroup.procs"
    finally:
        wait_until(lambda: _removed(directory, parent), "the control group is gone")


def _removed(directory: Path, parent: Path) -> bool:
    """Move out who is left, and remove a group; return False while the kernel still counts somebody who just ended."""
    for pid in (directory / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (parent / "cgroup.procs").write_text(pid)
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def used_megabytes(procs: Path) -> int:
    """Return what the processes of a group use."""
    names = ("memory.usage_in_bytes", "memory.current")
    return next(int((procs.parent / name).read_text()) >> 20 for name in names if (procs.parent / name).exists())


def join(procs: Path) -> None:
    """Put this process, and what it will start, into a group."""
    procs.write_text(str(os.getpid()))
