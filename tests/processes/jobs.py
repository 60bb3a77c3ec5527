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
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from fleet import Cancel, Fail, Fleet, Retry, Snooze, Stopped
from fleet.errors import UsageError
from fleet.storage.database import Database
from fleet.worker.claims import Claims
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


def _main_thread_writes() -> bool:
    """Return whether the worker's own thread is inside a transaction that has the write lock."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_code is Database._once.__code__:
            wire = frame.f_locals["connection"]
            return bool(wire.connection.dbapi_connection.in_transaction)
        frame = frame.f_back
    return False


@app.task()
def hold_up_writers(ctx: Context, seconds: float) -> dict[str, Any]:
    """Take the interpreter lock at a moment when the worker's own thread is writing; then as `hold_interpreter`.

    Where nothing runs beside it nothing is written, and it ends at once.
    """
    found = record(ctx)
    # Nobody takes the interpreter between the look and the call: this thread gives it only where it sleeps.
    sys.setswitchinterval(3600)
    while ctx.beside_others:
        if _main_thread_writes():
            ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1e6)))
            break
        time.sleep(0.0001)
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
def spoil(ctx: Context) -> None:
    """Break what notes how executions end."""
    record(ctx)
    del Claims.completion


@app.task()
async def async_spoil(ctx: Context) -> None:
    """Break what notes how executions end."""
    record(ctx)
    del Claims.completion


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


@app.task()
def heed(ctx: Context) -> None:
    """Last until asked to stop, and leave."""
    record(ctx)
    _await_order(ctx)
    ctx.stop_if_asked()


@app.task()
def hold_unless_asked(ctx: Context, gate: str) -> dict[str, Any]:
    """Last until the test opens the gate, but leave when asked to."""
    found = record(ctx)
    while not _gate(gate).exists():
        ctx.stop_if_asked()
        time.sleep(0.01)
    return found


@app.task()
def break_when_asked(ctx: Context) -> None:
    """Last until asked to stop, and break down over it."""
    record(ctx)
    _await_order(ctx)
    raise RuntimeError("it broke while it stopped")


@app.task()
def finish_when_asked(ctx: Context) -> dict[str, Any]:
    """Last until asked to stop, and come to the end of the work."""
    found = record(ctx)
    _await_order(ctx)
    return found


def _await_order(ctx: Context) -> None:
    while not ctx.should_stop:
        time.sleep(0.01)


SIGNALS = {
    "retry": lambda: Retry(after=0.2, message="not ready"),
    "snooze": lambda: Snooze(0.2),
    "cancel": lambda: Cancel("not needed"),
    "fail": lambda: Fail("never"),
    "stopped": lambda: Stopped("of its own accord"),
    "bad-retry": lambda: Retry(after=-1),
    "bad-snooze": lambda: Snooze("x"),
}


@app.task()
def raise_once(ctx: Context, name: str) -> dict[str, Any]:
    """Raise something the first time, then succeed."""
    found = record(ctx)
    first = ctx.step("first", lambda: found["run"])
    if first == found["run"]:
        raise SIGNALS[name]()
    return found


@app.task()
def steps(ctx: Context, gate: str) -> dict[str, Any]:
    """Do two steps and a checkpoint, last until the test opens the gate, and tell what is known of them."""
    found = record(ctx)
    last = ctx.last_checkpoint
    done = [ctx.step(name, lambda: found["run"]) for name in ("first", "second")]
    ctx.checkpoint({"reached": 2})
    _await_gate(gate)
    return {**found, "steps": done, "last": last}


@app.task()
def own_rows(ctx: Context, gate: str, fails: bool = False) -> dict[str, Any]:
    """Wait for the gate, and write a row of its own that commits with the task's end."""
    found = record(ctx)
    _await_gate(gate)
    with ctx.transaction() as connection:
        connection.execute(text("INSERT INTO test_effects VALUES (:task)"), {"task": ctx.task_id})
    ctx.progress(1.0, "written")
    if fails:
        raise RuntimeError("after the effects")
    return found


@app.task()
def add_parents(ctx: Context) -> list[Any]:
    """Return what this task's parents returned."""
    return [parent.result for parent in ctx.parents]


@app.task()
def die_in_transaction(ctx: Context, once: str) -> dict[str, Any]:
    """Write a row of its own, and the first time die before that is committed."""
    found = record(ctx)
    with ctx.transaction() as connection:
        connection.execute(text("INSERT INTO test_effects VALUES (:task)"), {"task": ctx.task_id})
        if not Path(once).exists():
            Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return found


@app.task()
def raise_always(ctx: Context, name: str) -> None:
    """Raise the same at every attempt."""
    record(ctx)
    raise SIGNALS[name]()


@app.task()
def die_in_step(ctx: Context, once: str) -> dict[str, Any]:
    """Do two steps, and the first time die inside of the second, before it is stored."""
    found = record(ctx)

    def die_once() -> str:
        if not Path(once).exists():
            Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found["run"]

    first = ctx.step("first", lambda: found["run"])
    return {**found, "steps": [first, ctx.step("second", die_once)]}


@app.task()
def report_beyond_the_end(ctx: Context) -> dict[str, Any]:
    """Return while a thread reports progress without a pause, until it hears that the task is not its own any more."""
    found = record(ctx)
    threading.Thread(target=_report, args=(ctx,), daemon=True).start()
    return found


def _report(ctx: Context) -> None:
    number = 0
    while not ctx.should_stop:
        number += 1
        # Complete each time: that is written however soon after the last.
        ctx.progress(1.0, f"report {number}")
    _gate(f"refused-{ctx.task_id}").touch()


@app.task()
async def async_hold(ctx: Context, gate: str) -> dict[str, Any]:
    """Last until the test opens the gate, without holding the thread."""
    found = record(ctx)
    while not _gate(gate).exists():
        await asyncio.sleep(0.01)
    return found


@app.task()
async def async_steps(ctx: Context, gate: str) -> dict[str, Any]:
    """Do a step, then last until the gate opens, then say how often the step was done."""
    found = record(ctx)

    async def first(name: str) -> str:
        with _gate(name).open("a") as file:
            file.write("x")
        return name

    name = await ctx.step("first", first, f"steps-{ctx.task_id}")
    while not _gate(gate).exists():
        await asyncio.sleep(0.01)
    return {**found, "done": _gate(name).read_text()}


@app.task()
async def async_transaction(ctx: Context) -> None:
    """Open a transaction in a coroutine."""
    record(ctx)
    with ctx.transaction():
        pass


@app.task()
def child_codes(ctx: Context) -> dict[str, Any]:
    """Run children that end with a code of their own, and tell the codes."""
    found = record(ctx)
    codes = [subprocess.run(["sh", "-c", f"exit {code}"], check=False).returncode for code in range(1, 20)]
    return {**found, "codes": codes}


@app.task()
def log_and_fail(ctx: Context, text: str) -> None:
    """Log a line of its own, and fail with the payload in the message."""
    record(ctx)
    ctx.log.warning("row of task", extra={"length": len(text)})
    raise ValueError(f"cannot use {text}")


@app.task()
async def log_async(ctx: Context, gate: str) -> dict[str, Any]:
    """Log before and after a wait, beside others."""
    found = record(ctx)
    ctx.log.info("before")
    while not _gate(gate).exists():
        await asyncio.sleep(0.01)
    ctx.log.info("after")
    return found


_leak: list[bytes] = []


@app.task()
def leak(ctx: Context, megabytes: int) -> dict[str, Any]:
    """Keep memory for good."""
    found = record(ctx)
    _leak.append(os.urandom(1 << 20) * megabytes)
    return found


@app.task()
def eat_memory(ctx: Context) -> None:
    """Take memory without end."""
    record(ctx)
    while True:
        _leak.append(os.urandom(1 << 20) * 16)


@app.task(timeout=1)
def brief_nap(ctx: Context, seconds: float) -> dict[str, Any]:
    """Take a while, by default not longer than a second."""
    found = record(ctx)
    time.sleep(seconds)
    return found


@app.task()
async def stop_loop(ctx: Context) -> dict[str, Any]:
    """Stop the event loop, which is not this handler's own."""
    found = record(ctx)
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)
    return found


@app.task()
async def cancel_all(ctx: Context) -> dict[str, Any]:
    """Cancel all coroutines of the loop, this one included."""
    found = record(ctx)
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0.1)
    return found


@app.task()
async def same_step_twice(ctx: Context) -> str:
    """Do a step while it is under way."""
    record(ctx)
    done = []

    async def step() -> int:
        done.append(1)
        await asyncio.sleep(0.1)
        return len(done)

    first = asyncio.ensure_future(ctx.step("one", step))
    await asyncio.sleep(0)
    try:
        await ctx.step("one", step)
    except UsageError as error:
        return f"{await first} {error}"
    return "both were done"
