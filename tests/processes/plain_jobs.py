"""Tasks that use what workers offer, whatever database the fleet is in; imported by workers only."""

from __future__ import annotations

import os

from fleet import Fleet, Retry
from fleet.worker.context import Context

app = Fleet()


@app.task()
def note(ctx: Context) -> int:
    """Return which task it is."""
    return ctx.task_id


@app.task()
def flaky(ctx: Context) -> int:
    """Fail at first."""
    if ctx.attempt == 1:
        raise Retry(after=0.1)
    return ctx.attempt


@app.task()
def die() -> None:
    """End the worker."""
    os._exit(7)


@app.task()
def steps(ctx: Context) -> int:
    """Do a step, save a checkpoint, tell how far it is, and enqueue a task with the end."""
    ctx.checkpoint({"reached": ctx.step("first", lambda: 1)})
    ctx.progress(0.5, "half")
    with ctx.transaction() as connection:
        app.enqueue("note", connection=connection)
    return 1
