"""The kit's own plain SQL: what an operator does with `sqlite3`, and no interface of Fleet offers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

BUSY_SECONDS = 10.0


def pause_worker(database: Path, worker_id: str, *, paused: bool) -> None:
    """Let a worker claim nothing, or claim again."""
    with closing(sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("UPDATE worker_registry SET paused = ? WHERE worker_id = ?", (paused, worker_id))
