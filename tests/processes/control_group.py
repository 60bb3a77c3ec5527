"""A control group of a test's own, with a limit of memory; only where this host lets a test make one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet.cgroup import memory_group
from tests.processes import procfs
from tests.processes.running import wait_until

ENTERING = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.executable, sys.argv[2:])"
"""Enters a group (its file of processes), then becomes another command."""


class ControlGroup:
    """A group of processes with a limit.

    Args:
        folder: its directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_v1 = (folder / "memory.limit_in_bytes").exists()
        self.procs = folder / "cgroup.procs"

    def limit(self, mebibytes: int) -> None:
        """Set the limit."""
        name = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
        (self._folder / name).write_text(str(mebibytes << 20))

    @property
    def used(self) -> int:
        """MiB that are used."""
        name = "memory.usage_in_bytes" if self._is_v1 else "memory.current"
        return int((self._folder / name).read_text()) >> 20

    def close(self) -> None:
        """Kill whoever is in it, and remove it."""

        def is_empty() -> bool:
            for pid in self.procs.read_text().split():
                procfs.kill(int(pid))
            with suppress(OSError):
                self._folder.rmdir()
            return not self._folder.exists()

        wait_until(is_empty, "the control group is removed")


@contextmanager
def made(mebibytes: int) -> Iterator[ControlGroup | None]:
    """Give a fresh group with a limit; None where none can be made."""
    own = memory_group()
    folder = None if own is None else own.levels[0] / f"fleet-test-{uuid.uuid4().hex}"
    try:
        if folder is None or os.geteuid() != 0:
            raise PermissionError
        folder.mkdir()
    except OSError:
        yield None
        return
    group = ControlGroup(folder)
    try:
        try:
            group.limit(mebibytes)
        except OSError:
            yield None
            return
        yield group
    finally:
        group.close()
