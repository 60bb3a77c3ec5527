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


def test_fast_start_measures_both_sides() -> None:
    """The short form starts a group and as many separate processes, and prints their ratio and the workers' memory."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "fast_start.py", "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ratio = re.search(r"^ratio 1/([\d.]+) \(median\)", done.stdout, re.M)
    memory = re.search(r"^private memory ([\d.]+) MiB at most", done.stdout, re.M)
    assert ratio, done.stdout
    assert memory, done.stdout
    assert float(ratio[1]) > 1
    assert 1 < float(memory[1]) < 50
