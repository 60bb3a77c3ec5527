"""A second task module, for the pool next door."""

from __future__ import annotations

from typing import Any

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record

app = Fleet()


@app.task()
def elsewhere(ctx: Context) -> dict[str, Any]:
    """Leave a line."""
    return record(ctx)
