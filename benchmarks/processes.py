"""Processes that end with the benchmark, however it ends."""

from __future__ import annotations

import compileall
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Invalid(Exception):
    """A run that counts for nothing: something was lost, done twice, or did not happen in time."""


def end_with_parent(number: int) -> None:
    """Have the kernel send a signal to this process when its parent dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


@contextmanager
def folder() -> Iterator[Path]:
    """Give a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        yield Path(name)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: this package can be imported, wherever the benchmark was started."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **(more or {})}


def python(*arguments: str) -> list[str]:
    """Return a command of the Python that runs the benchmark."""
    return [sys.executable, *arguments]


def run(command: Sequence[str]) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    if done.returncode:
        raise Invalid(f"{' '.join(command[1:4])} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


@contextmanager
def running(
    command: Sequence[str], *, stop: signal.Signals = signal.SIGTERM, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the block; at its end it is asked to stop, and what is left of it is killed.

    Args:
        command: what to run.
        stop: the signal that asks.
        more: variables of its environment.
    """
    process = subprocess.Popen(
        command,
        env=environment(more),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(stop),
    )
    try:
        yield process
    finally:
        _end(process, stop)


def _end(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    family = family_of(process.pid)
    process.send_signal(stop)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for member in family:
        if member.is_running():
            member.kill()
    psutil.wait_procs(family, 10)


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; what has ended meanwhile is missing."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE, pause: float = 0.02) -> None:
    """Wait until a condition holds.

    Raises:
        Invalid: it did not within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Invalid(f"{what}: not within {seconds:g} s")
        time.sleep(pause)


def compile_fleet() -> None:
    """Compile Fleet's modules, as installing it does: in a checkout that nobody may write to, each start would."""
    compileall.compile_dir(ROOT / "fleet", quiet=2)


def elapsed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
