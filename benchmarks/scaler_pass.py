"""A scaler pass with nothing to do, against `python -c "import sqlalchemy"`: CPU seconds of whole processes.

Usage: scaler_pass.py [--runs N]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def cpu(command: list[str]) -> float:
    """Return the CPU seconds that a command took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Alternate the two, and print medians and the ratio, pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        database = str(Path(folder) / "fleet.db")
        idle = [sys.executable, "-m", "fleet.cli.scaler", "--db-path", database, "--target-workers", "0"]
        floor = [sys.executable, "-c", "import sqlalchemy"]
        cpu(idle)
        pairs = [(cpu(floor), cpu(idle)) for _ in range(given.runs)]
    ratio = statistics.median(ours / base for base, ours in pairs)
    base, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"idle scaler pass {ours:.3f} s of CPU, import sqlalchemy {base:.3f} s (medians), ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
