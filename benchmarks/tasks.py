"""The tasks that Fleet's workers execute in the benchmarks."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

from fleet import Fleet

MARK = struct.Struct("qq")

app = Fleet()


@app.task()
def work() -> bool:
    """Do nothing; what is returned is stored."""
    return True


@app.task()
def pause(seconds: float) -> bool:
    """Wait."""
    time.sleep(seconds)
    return True


def mark(number: int, folder: str) -> None:
    """Remember in this process's file when a task began: its number, and nanoseconds of the monotonic clock."""
    began = time.monotonic_ns()
    file = os.open(os.path.join(folder, str(os.getpid())), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, MARK.pack(number, began))
    os.close(file)


@app.task()
def stamp(number: int, folder: str) -> bool:
    """Remember when this task began."""
    mark(number, folder)
    return True


@app.task()
def modules(into: str) -> None:
    """Say what this worker has loaded."""
    Path(into).write_text(" ".join(sorted(sys.modules)))


@app.task()
def stay(gate: str) -> None:
    """Keep a worker until the gate opens."""
    while not Path(gate).exists():
        time.sleep(0.2)
