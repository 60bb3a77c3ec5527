"""One shell command: started in a session of its own, listened to, and ended with all that has come from it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from typing import IO

from fleet.clock import boottime
from fleet.domain.signals import StopReason
from fleet.process import Sighting
from fleet.worker import into_shell
from fleet.worker.descendants import ENDING_TIME, Descendants, adopting_orphans, ask, kill, own_children
from fleet.worker.output import Output
from fleet.worker.stop import Stop

TERM_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

_TICK = 0.1
_ENDING_TICK = 0.02
_COLLECTING_INTERVAL = 10.0
_MARGIN = 0.5
_READ_BYTES = 256 * 1024
_LAST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """A command as it is to be executed.

    Attributes:
        text: what the shell reads.
        cwd: where; None for the worker's own directory.
        environment: all variables that it gets.
        claim: the name of the claim, which is among these.
        alone: whether nothing else runs in this process meanwhile.
    """

    text: str
    cwd: str | None
    environment: Mapping[str, str]
    claim: str
    alone: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: the shell's exit code; None when a signal ended it, or nobody knows.
        signal: that signal.
        peak_memory_mb: the largest process of it, where that was larger than the worker.
        stop: why it was ended early, None when it came to its end.
        left: what could not be ended.
    """

    code: int | None
    signal: int | None
    peak_memory_mb: float | None
    stop: Stop | None
    left: Sequence[Sighting]


def execute(order: Order, output: Output, stop: Callable[[], Stop | None]) -> Ended:
    """Execute a command to its end, or until it is to stop; nothing of it is left but what cannot be ended.

    Args:
        order: the command.
        output: takes what it writes to stdout and stderr.
        stop: returns the order to end early, None while there is none.

    Raises:
        OSError: it could not be started.
    """
    with adopting_orphans():
        others = own_children() if order.alone else None
        size_before = getrusage(RUSAGE_SELF).ru_maxrss
        with _started(order) as child, _Listener(child, output) as listener:
            running = _Running(child.pid, listener, Descendants(child.pid, order.claim, others), stop)
            try:
                stopped = running.wait()
                left = running.end(stopped)
            except BaseException:
                running.end(Stop(StopReason.CLAIM_LOST, boottime()))
                raise
            listener.read_the_rest()
            code, peak = listener.status
        return Ended(
            code=code if code is None or code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            # A process begins with the size of the one that it was forked from: a smaller peak is not seen.
            peak_memory_mb=round(peak / 1024, 1) if peak > size_before else None,
            stop=stopped,
            left=left,
        )


@contextmanager
def _started(order: Order) -> Iterator[subprocess.Popen[bytes]]:
    program: list[str | bytes] = [
        sys.executable,
        "-I",
        "-S",
        into_shell.__file__,
        str(os.getpid()),
        order.text.encode(),
    ]
    child = subprocess.Popen(
        program,
        cwd=order.cwd,
        env={name.encode(): value.encode() for name, value in order.environment.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=0,
    )
    try:
        yield child
    finally:
        # Its end is known, or it cannot be ended: nobody is to wait for it.
        child.returncode = child.returncode or 0
        if child.stdout:
            child.stdout.close()


def _collected(pid: int) -> tuple[int | None, int]:
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return None, 0
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss


class _Listener:
    """Reads what a command writes, and hears of the end of its shell.

    Attributes:
        shell_ended: whether that has come.
        status: its exit code (negative: a signal; None: unknown), and the peak memory in KiB.
    """

    def __init__(self, child: subprocess.Popen[bytes], output: Output) -> None:
        assert child.stdout is not None
        self._child = child
        self._pipe: IO[bytes] = child.stdout
        self._output = output
        self._shell = os.pidfd_open(child.pid)
        self._poll = select.poll()
        self._open = True
        self.shell_ended = False
        self.status: tuple[int | None, int] = (None, 0)
        os.set_blocking(self._pipe.fileno(), False)
        for descriptor in (self._pipe.fileno(), self._shell):
            self._poll.register(descriptor, select.POLLIN)

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._shell)

    def listen(self, seconds: float) -> None:
        """Wait until something is written or the shell has ended, at most so long; take it."""
        for descriptor, _events in self._poll.poll(seconds * 1000):
            if descriptor == self._shell:
                self._poll.unregister(descriptor)
                self.shell_ended = True
                # At once: who has no child left has nothing to look for.
                self.status = _collected(self._child.pid)
            else:
                self._read()

    def _read(self) -> int:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._output.write(data)
        elif self._open:
            self._open = False
            self._poll.unregister(self._pipe.fileno())
        return len(data)

    def read_the_rest(self) -> None:
        """Take what has been written already; whoever still holds the pipe is not waited for."""
        taken = 0
        while taken < _LAST_BYTES and (read := self._read()):
            taken += read


class _Running:
    """A command under way."""

    def __init__(
        self, shell: int, listener: _Listener, descendants: Descendants, stop: Callable[[], Stop | None]
    ) -> None:
        self._shell = shell
        self._listener = listener
        self._descendants = descendants
        self._stop = stop

    def wait(self) -> Stop | None:
        """Wait for the end of the shell; return why it is to end early, None when it has come to its end."""
        collected_at = boottime()
        while not self._listener.shell_ended:
            if (stop := self._stop()) is not None:
                return stop
            self._listener.listen(_TICK)
            if boottime() - collected_at > _COLLECTING_INTERVAL:
                # Orphans that have ended are ours to collect, however long the command lasts.
                self._descendants.living()
                collected_at = boottime()
        return None

    def end(self, stop: Stop | None) -> list[Sighting]:
        """End what is left of the command: asked first, killed later, until nobody is left; return who is.

        What is to be ended from outside soon is killed before that, so that its worker lives.
        """
        asked: set[int] = set()
        kill_at = boottime() + TERM_GRACE
        while left := self._descendants.living():
            stop = stop or self._stop()
            if stop is not None:
                kill_at = min(kill_at, max(boottime(), stop.by - _MARGIN))
            if boottime() >= kill_at + ENDING_TIME:
                return left
            if boottime() >= kill_at:
                kill(left)
            else:
                ask(seen for seen in left if seen.pid not in asked)
                asked.update(seen.pid for seen in left)
            self._listener.listen(_ENDING_TICK)
        self._listener.listen(0.0)
        return []
