"""Tasks that misbehave in ways that only the tests of this folder need; imported by workers only."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record
from tests.processes.stranger import write_lock

app = Fleet()


@app.task()
def lock_own_fleet(ctx: Context, seconds: float) -> dict[str, Any]:
    """Hold the write lock of the very database that the worker lives on."""
    found = record(ctx)
    with write_lock(os.environ["TEST_DATABASE"], patience=10):
        time.sleep(seconds)
    return found


@app.task()
def hold_anywhere(ctx: Context, gate: str) -> None:
    """Leave a line, and last until the test opens the gate; whatever database the fleet is in."""
    with open(os.environ["TEST_EXECUTIONS"], "a", encoding="ascii") as file:
        file.write(f"{ctx.task_id} {ctx.attempt}\n")
    while not Path(os.environ["TEST_GATES"], gate).exists():
        time.sleep(0.01)


@app.task()
def close_everything(ctx: Context) -> None:
    """Close every descriptor, those of the worker included."""
    record(ctx)
    os.closerange(3, 65_536)


@app.task()
def reopen_everything(ctx: Context) -> None:
    """Close every descriptor, and open other files that get their numbers."""
    record(ctx)
    os.closerange(3, 65_536)
    for _ in range(40):
        os.open(os.devnull, os.O_RDWR)


@app.task(timeout=1)
def short_of_time(ctx: Context, gate: str) -> None:
    """Last until the test opens the gate, or the handler's own timeout."""
    record(ctx)
    while not Path(os.environ["TEST_GATES"], gate).exists():
        time.sleep(0.01)
