"""Tasks of the soak test: each execution writes when it begins and when it ends into a log that is none of Fleet's."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import time
import uuid
from typing import Any

from sqlalchemy import text

from fleet import Fleet
from fleet.worker.context import Context

app = Fleet()
_leaked: list[bytes] = []


def write(ctx: Context, what: str, run: str) -> str:
    """Append a line about this execution; return `run`."""
    descriptor = os.open(os.environ["TEST_EXECUTIONS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps([ctx.task_id, what, run]).encode() + b"\n")
    os.close(descriptor)
    return run


def begin(ctx: Context) -> str:
    """Say that this execution begins; return its name."""
    return write(ctx, "begin", uuid.uuid4().hex)


@app.task()
def rest(ctx: Context, seconds: float) -> str:
    """Sleep."""
    run = begin(ctx)
    time.sleep(seconds)
    return write(ctx, "end", run)


@app.task()
async def wait(ctx: Context, seconds: float) -> str:
    """Sleep as a coroutine."""
    run = begin(ctx)
    await asyncio.sleep(seconds)
    return write(ctx, "end", run)


@app.task()
def compute(ctx: Context, seconds: float) -> str:
    """Use a CPU."""
    run = begin(ctx)
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1_000))
    return write(ctx, "end", run)


@app.task()
def leak(ctx: Context, megabytes: int) -> str:
    """Keep memory for good."""
    run = begin(ctx)
    _leaked.append(os.urandom(1 << 20) * megabytes)
    return write(ctx, "end", run)


@app.task()
def crash(ctx: Context, how: str) -> None:
    """Take the process along."""
    begin(ctx)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task()
def stuck(ctx: Context) -> None:
    """Never come back from C."""
    begin(ctx)
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task()
def effect(ctx: Context) -> str:
    """Write a row that commits with the task's end."""
    run = begin(ctx)
    time.sleep(0.02)
    write(ctx, "end", run)
    with ctx.transaction() as connection:
        connection.execute(text("INSERT INTO test_effects VALUES (:task)"), {"task": ctx.task_id})
    return run


@app.task()
def staged(ctx: Context) -> dict[str, Any]:
    """Do three steps, each once."""
    run = begin(ctx)
    steps = [ctx.step(name, _step, ctx, name) for name in ("one", "two", "three")]
    return {"run": write(ctx, "end", run), "steps": steps}


def _step(ctx: Context, name: str) -> str:
    time.sleep(0.05)
    return write(ctx, name, uuid.uuid4().hex)
