"""Processes that end unless they are told to live on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = "import ctypes, time; from fleet.worker.fuse import Fuse; fuse = Fuse()\n"
HOLD_INTERPRETER = "ctypes.PyDLL(None).usleep(ctypes.c_uint(30_000_000))"


def ended(code: str) -> int:
    """Run code to its end; return how that was."""
    return subprocess.run([sys.executable, "-c", BEGIN + code], check=False, timeout=60).returncode


@pytest.mark.parametrize("waiting", ["time.sleep(30)", HOLD_INTERPRETER])
def test_a_process_ends_when_its_time_is_over(waiting: str) -> None:
    """Whatever it does: it may sleep, or hold the interpreter."""
    assert ended(f"fuse.last(0.2); {waiting}") == -signal.SIGKILL


def test_a_process_lives_on_as_long_as_it_is_told_to() -> None:
    """What is said again puts the end off, and a fuse that was put out harms nobody."""
    again = "for _ in range(10): fuse.last(0.5); time.sleep(0.1)\n"
    assert ended(f"{again}fuse.last(0.2); fuse.put_out(); time.sleep(0.5)") == 0
