"""A task module whose import starts a thread that logs without end: a process that forks now may copy a held lock."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from fleet import Fleet
from fleet.worker.context import Context
from tests.processes.recording import record

app = Fleet()
_log = logging.getLogger("tests.threaded")


def _chatter() -> None:
    while True:
        _log.debug("still here")
        time.sleep(0.001)


threading.Thread(target=_chatter, daemon=True).start()


@app.task()
def logging_note(ctx: Context) -> dict[str, Any]:
    """Log and leave a line."""
    _log.debug("executing")
    return record(ctx)
