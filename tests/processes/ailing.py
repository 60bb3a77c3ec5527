"""Tasks of which some fail on one worker and not on another, as in a broken environment."""

from __future__ import annotations

import os
from typing import Any

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record

app = Fleet()


@app.task(max_attempts=20, retry={"wait": "fixed", "multiplier": 0.05})
def use_device(ctx: Context) -> dict[str, Any]:
    """Fail wherever the device is broken."""
    if os.environ.get("TEST_DEVICE") == "broken":
        raise OSError("no such device")
    return record(ctx)
