"""The kit's handlers for Python workers: `fleet-worker --tasks fleet.conformance.tasks`."""

from __future__ import annotations

import json
import os
from typing import Any

from fleet import Fleet
from fleet.clock import SystemClock

app = Fleet()


@app.task(name="kit.echo")
def echo(**payload: Any) -> dict[str, Any]:
    """Return the payload."""
    return payload


@app.task(name="kit.append")
def append(**payload: Any) -> None:
    """Add the payload, as one line, to the file that FLEET_KIT_FILE names: evidence of each execution."""
    line = json.dumps(payload).encode() + b"\n"
    handle = os.open(os.environ["FLEET_KIT_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


@app.task(name="kit.sleep")
def sleep(seconds: float) -> None:
    """Take so many seconds."""
    SystemClock().sleep(seconds)


@app.task(name="kit.fail")
def fail() -> None:
    """Fail."""
    raise RuntimeError("failed as ordered")
