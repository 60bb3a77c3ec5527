"""A pseudo-terminal with a process in it, to type ^C into and to hang up."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROL_C = b"\x03"


class Terminal:
    """Starts a process as the foreground job of a terminal of its own.

    Args:
        arguments: the command line.
        environment: all of it.
        cwd: where it runs.
        inherited: descriptors that it gets besides.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, inherited: Sequence[int] = ()
    ) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            arguments,
            env=environment,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self._shown = b""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def text(self) -> str:
        """Return what was shown so far."""
        while self._master >= 0 and select.select([self._master], [], [], 0)[0]:
            try:
                shown = os.read(self._master, 65_536)
            except OSError:
                # The last process of the terminal is gone.
                break
            if not shown:
                break
            self._shown += shown
        return self._shown.decode("utf-8", "replace")

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        if self._master >= 0:
            self.text()
            os.close(self._master)
            self._master = -1


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
