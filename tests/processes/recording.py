"""How an execution leaves a trace: one line in a file that all executions of a test append to."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from fleet.process import start_ticks
from fleet.worker.context import Context
from tests.processes.stranger import connected


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
    with connected(os.environ["TEST_DATABASE"], read_only=True) as stranger:
        return int(stranger.rows("SELECT claim_token FROM work_queue WHERE id = ?", (task_id,))[0][0])
