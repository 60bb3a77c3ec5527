"""Processes of a test, and waiting for what they do: always for a condition, never longer than a deadline."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 40.0
"""Seconds for what takes one or two on an idle machine, or a rescue."""


def wait_until(condition: Callable[[], T], what: str, seconds: float = PATIENCE, report: Callable[[], str] = str) -> T:
    """Wait until `condition()` is true and return its value; fail after `seconds`, saying what did not happen."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{report()}")
        time.sleep(0.01)
    return value


class Running:
    """A process that a test has started.

    Args:
        process: the process.
        output: where it writes to.
    """

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output
        self.pid = process.pid

    @property
    def text(self) -> str:
        """What it has written."""
        return self._output.read_text(errors="replace")

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; return its exit code (negative: a signal)."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"pid {self.pid} still runs after {seconds:g} s:\n{self.text[-3000:]}") from None

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)


def read_bytes(descriptor: int, number: int, seconds: float = PATIENCE) -> None:
    """Read so many bytes; fail when they do not come."""
    deadline = time.monotonic() + seconds
    while number:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"{number} processes were not ready within {seconds:g} s"
        number -= len(os.read(descriptor, number))
