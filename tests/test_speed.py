"""What is fast has stayed fast: ratios of processor time within one run, never seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import guard
from benchmarks.compare import Series

ROOT = Path(__file__).resolve().parent.parent


def test_nothing_has_become_slow() -> None:
    """Workers, enqueuers and commands take no more than a multiple of what a raw loop, or plain imports, take."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok\n") == len(guard.BOUNDS)


def test_what_has_become_slow_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A ratio beyond its bound is said, by its median."""
    times = {"fast": Series((1.0, 2.0, 9.0)), "loop": Series((1.0, 1.0, 1.0))}
    assert guard.told(times, "fast", "loop", 2.0)
    assert not guard.told(times, "fast", "loop", 1.9)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["fast / loop: 2.00 (<= 2): ok", "fast / loop: 2.00 (<= 1.9): TOO SLOW"]
