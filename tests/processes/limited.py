"""Runs a worker group inside a control group: `limited.py PROCS_FILE ARGUMENTS...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.processes.cgroups import join

if __name__ == "__main__":
    join(Path(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", "fleet.cli.worker", *sys.argv[2:]])
