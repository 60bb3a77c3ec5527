"""Tasks that leave when they were executed, by a clock that all hosts have in common."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record

app = Fleet()

EACH = 0.01
"""Seconds between two signs of life of an execution."""


@app.task()
def tend(ctx: Context, gate: str) -> dict[str, Any]:
    """Leave a sign of life again and again, until the test opens the gate."""
    found = record(ctx)
    with open(Path(os.environ["TEST_SIGNS"], found["run"]), "w", buffering=1) as signs:
        signs.write(f"{socket.gethostname()}\n")
        while not Path(os.environ["TEST_GATES"], gate).exists():
            signs.write(f"{time.monotonic():.6f}\n")
            time.sleep(EACH)
        signs.write(f"{time.monotonic():.6f}\nover\n")
    return {**found, "host": socket.gethostname(), "clock": datetime.now(UTC).isoformat()}


@app.task()
def tend_with_rows(ctx: Context, gate: str) -> dict[str, Any]:
    """As `tend`, with a transaction of its own open that has locked a row."""
    with ctx.transaction() as connection:
        connection.execute(text("INSERT INTO test_effects VALUES (:task)"), {"task": ctx.task_id})
        connection.execute(text("SELECT * FROM test_row FOR UPDATE"))
        return tend.function(ctx, gate)
