"""Tasks that the tests of this folder run; each execution leaves a line in a file that all of them append to.

Imported by workers only. Where the test's files are is in the environment; gates are files that a test makes.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record

app = Fleet()


def _gate(name: str) -> Path:
    return Path(os.environ["TEST_GATES"]) / name


def _await_gate(name: str) -> None:
    while not _gate(name).exists():
        time.sleep(0.01)


@app.task()
def note(ctx: Context) -> dict[str, Any]:
    """Leave a line."""
    return record(ctx)


@app.task()
def nap(ctx: Context, seconds: float) -> dict[str, Any]:
    """Take a while."""
    found = record(ctx)
    time.sleep(seconds)
    return found


@app.task()
def hold(ctx: Context, gate: str) -> dict[str, Any]:
    """Last until the test opens the gate."""
    found = record(ctx)
    _await_gate(gate)
    return found


@app.task()
def hold_interpreter(ctx: Context, seconds: float) -> dict[str, Any]:
    """Sleep in C with the interpreter lock held: no other thread of this process runs meanwhile."""
    found = record(ctx)
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1e6)))
    return found


@app.task()
def stuck_in_c(ctx: Context) -> None:
    """Never come back from one C call."""
    record(ctx)
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task()
async def stuck_in_await(ctx: Context) -> None:
    """Never come back from an await."""
    record(ctx)
    await asyncio.Event().wait()


@app.task()
async def async_note(ctx: Context) -> dict[str, Any]:
    """Leave a line from a coroutine."""
    await asyncio.sleep(0)
    return record(ctx)


@app.task()
def flaky(ctx: Context) -> dict[str, Any]:
    """Fail once, then succeed."""
    found = record(ctx)
    if ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return found


@app.task()
def die(ctx: Context) -> None:
    """Kill the worker."""
    record(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task()
def leave(ctx: Context) -> None:
    """Make the worker's process exit, past everything that could catch it."""
    record(ctx)
    os._exit(7)


@app.task()
def exit_politely(ctx: Context) -> None:
    """Raise what ends a program; a worker outlives it."""
    record(ctx)
    sys.exit("this is not the worker's end")


@app.task()
def ignore_sigterm(ctx: Context, gate: str) -> dict[str, Any]:
    """Take the worker's signals away, and last."""
    found = record(ctx)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _await_gate(gate)
    return found


@app.task()
def leave_zombie(ctx: Context, gate: str) -> dict[str, Any]:
    """Fork a child that ends at once, do not wait for it, and last."""
    found = record(ctx)
    if os.fork() == 0:
        os._exit(0)
    _await_gate(gate)
    return found


@app.task()
def leave_child(ctx: Context) -> dict[str, Any]:
    """Fork a child that outlives the task by far."""
    found = record(ctx)
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return found


@app.task()
def fork_and_return(ctx: Context) -> dict[str, Any]:
    """Fork, and let both processes return from the handler, as a careless one does."""
    found = record(ctx)
    os.fork()
    return found


@app.task()
def fork_and_raise(ctx: Context) -> dict[str, Any]:
    """Fork a child that leaves the handler by an exception."""
    found = record(ctx)
    if os.fork() == 0:
        logging.getLogger().debug("the child lives")
        raise RuntimeError("raised in a forked child")
    os.wait()
    return found
