"""The benchmarks run: in a short form here, without bounds, since a test must not depend on the machine's speed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_flat_cost_measures_every_situation() -> None:
    """The short form measures each situation against the empty table, and prints its ratio."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "flat_cost.py", "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ratios = {
        name.strip(): float(ratio)
        for name, ratio in re.findall(r"^(.+?) +[\d.]+ us +ratio ([\d.]+)", done.stdout, re.M)
    }
    assert ratios.pop("empty") == 1.0
    assert len(ratios) == 8
    assert all(0.1 < ratio < 10 for ratio in ratios.values()), done.stdout


def test_fast_start_measures_time_and_memory() -> None:
    """The short form starts a group and as many processes, and prints their times and the private memory."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "fast_start.py", "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"20 workers ready in ([\d.]+) s, 20 processes in ([\d.]+) s, ratio 1/([\d.]+)", done.stdout)
    assert found, done.stdout
    ours, theirs, ratio = map(float, found.groups())
    assert 0 < ours < theirs
    assert abs(theirs / ours - ratio) < ratio / 10
    most, median = map(float, re.findall(r"([\d.]+) MiB (?:at most|median)", done.stdout))
    # Far above the bound, far below what an interpreter with all these modules holds: workers do share.
    assert 1 < median <= most < 20
