"""The application that `huey_consumer` loads: its tasks, and the database that the environment names."""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from typing import Any

from huey import SqliteHuey

DATABASE = "BENCH_HUEY_DATABASE"
DURABILITY = "BENCH_HUEY_DURABILITY"
MARKS = "BENCH_HUEY_MARKS"
MARK = struct.Struct("qq")


class Normal(sqlite3.Connection):
    """A connection as durable as those of Fleet's workers: in the write-ahead log, synced at checkpoints."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous=NORMAL")


WAYS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "normal": {"factory": Normal},
    "durable": {"fsync": True},
    "unsynced": {"fsync": False},
}
_files: dict[int, int] = {}


def mark(number: int) -> None:
    """Remember in this process's file that a task begins: number and nanoseconds of the monotonic clock."""
    pid = os.getpid()
    if pid not in _files:
        path = os.path.join(os.environ[MARKS], str(pid))
        _files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_files[pid], MARK.pack(number, time.monotonic_ns()))


def work(number: int, seconds: float) -> bool:
    """Do nothing, or wait; what is returned is stored."""
    mark(number)
    if seconds:
        time.sleep(seconds)
    return True


def stay(number: int, gate: str) -> bool:
    """Keep a worker until the gate opens."""
    mark(number)
    while not os.path.exists(gate):
        time.sleep(0.2)
    return True


class App(SqliteHuey):
    """A queue with both tasks.

    Args:
        database: its file.
        durability: a key of `WAYS`.
    """

    def __init__(self, database: str, durability: str) -> None:
        super().__init__("bench", filename=database, timeout=60, **WAYS[durability])
        self.work = self.task()(work)
        self.stay = self.task()(stay)


if DATABASE in os.environ:
    huey = App(os.environ[DATABASE], os.environ[DURABILITY])
