"""How an execution leaves a trace: one line in a file that all executions of a test append to."""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from typing import Any

from fleet.process import start_ticks
from fleet.worker.context import Context


def record(ctx: Context) -> dict[str, Any]:
    """Append who executes what, under which claim, and return what the accepted result must say."""
    run = uuid.uuid4().hex
    line = {
        "task": ctx.task_id,
        "attempt": ctx.attempt,
        "token": _token(ctx.task_id),
        "pid": os.getpid(),
        "ticks": start_ticks(os.getpid()),
        "run": run,
    }
    descriptor = os.open(os.environ["TEST_EXECUTIONS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)
    return {"run": run}


def _token(task_id: int) -> int:
    """Return the claim token as stored: read by hand, so that the check does not rest on what it checks."""
    connection = sqlite3.connect(f"file:{os.environ['TEST_DATABASE']}?mode=ro", uri=True, timeout=30)
    try:
        return int(connection.execute("SELECT claim_token FROM work_queue WHERE id = ?", (task_id,)).fetchone()[0])
    finally:
        connection.close()
