"""On what machine, and with what versions, a run was made."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import peers
from benchmarks.outcome import Table


def table(scale: str, load: tuple[float, float, float]) -> Table:
    """Return the machine as a table.

    Args:
        scale: the name of the run's scale.
        load: the load averages at its start.
    """
    known = {name: number or "not installed" for name, number in peers.versions().items()}
    rows = {
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system of the databases": _file_system(),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Fleet (sqlfleet)": version("sqlfleet"),
        "SQLAlchemy": version("sqlalchemy"),
        **known,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load averages at the start": " ".join(f"{value:.2f}" for value in load),
        "run": scale,
    }
    return Table("Machine", ("what", "which"), tuple(rows.items()))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system() -> str:
    import tempfile

    import psutil

    path = os.path.realpath(tempfile.gettempdir())
    mounts = [part for part in psutil.disk_partitions(all=True) if path.startswith(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
