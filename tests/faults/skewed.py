"""Runs a command line on a host whose wall clock a test steps: `python -m tests.faults.skewed FILE MODULE ...`.

FILE holds by how many seconds the clock is off; it is read at every look at the clock, by every process forked here.
"""

from __future__ import annotations

import importlib
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.clock import SystemClock, truncated


def main() -> None:
    """Put the clock aside, and run."""
    offset, name, *arguments = sys.argv[1:]

    def now(_: SystemClock) -> datetime:
        return truncated(datetime.now(UTC) + timedelta(seconds=float(Path(offset).read_text() or "0")))

    SystemClock.now = now  # type: ignore[method-assign]
    sys.argv = [name, *arguments]
    importlib.import_module(name).run()


if __name__ == "__main__":
    main()
