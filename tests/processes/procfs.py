"""What /proc says of the processes of one test, found by a variable in their environment."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from fleet.process import start_ticks, state

PROC = Path("/proc")

Identity = tuple[int, int]
"""A pid and the start ticks that make it unmistakable."""


def identity(pid: int) -> Identity:
    """Return who has this pid now; ticks 0 when nobody."""
    return pid, start_ticks(pid) or 0


def marked(variable: str, value: str) -> list[int]:
    """Return the pids of living processes whose first environment holds VARIABLE=VALUE, forked children included."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return sorted(found)


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    return state(pid) not in (None, "Z", "X")


def parent(pid: int) -> int | None:
    """Return the parent's pid; None when the process is gone."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def zombies_of(pid: int) -> list[int]:
    """Return the pids of ended children that this process has not collected."""
    return [
        int(entry.name)
        for entry in PROC.iterdir()
        if entry.name.isdigit() and state(int(entry.name)) == "Z" and parent(int(entry.name)) == pid
    ]


def descriptors(pid: int) -> list[str]:
    """Return what the open descriptors of a process stand for."""
    links = []
    for entry in (PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(entry))
    return links


def anonymous_mb(pid: int) -> float:
    """Return the MiB of memory that a process has filled, whether it shares the pages with forked children or not.

    What it has for itself alone would not tell of growth: it rises and falls with what its children write and with
    their deaths.
    """
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def locked_inodes() -> set[int]:
    """Return the inodes of files on which any process of the host holds a lock."""
    lines = (PROC / "locks").read_text().splitlines()
    return {int(field.rsplit(":", 1)[1]) for line in lines for field in line.split() if field.count(":") == 2}


def kill(pid: int) -> None:
    """End a process at once, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
