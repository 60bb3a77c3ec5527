"""One worker under test: a command and all processes that have come of it."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleet import process
from fleet.clock import SystemClock
from fleet.process import Sighting

MARK = "FLEET_KIT_MARK"
"""A variable by which the processes of one worker are found, wherever they stand."""

_PAUSE = 0.02
_LOOKS = 250
_LAST_WORDS = 300


class Candidate:
    """A worker under test.

    Args:
        command: how it is started.
        environment: its environment.
        log: a new file for what it prints.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._mark = uuid.uuid4().hex
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(command),
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process that was started; None while it lives."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """The end of what it printed."""
        return " ".join(self._log.read_text(errors="replace").split())[-_LAST_WORDS:]

    def processes(self) -> list[Sighting]:
        """Return its processes that live, the oldest first."""
        seen = process.sightings().values()
        return [one for one in seen if one.lives and process.variable_of(one.pid, MARK) == self._mark]

    def terminate(self) -> None:
        """Ask it to end, as an operator does."""
        self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> bool:
        """Stop all of its processes; return whether all stand still."""
        return self._all(signal.SIGSTOP, lambda one: one.state in "Tt")

    def thaw(self) -> None:
        """Let its processes go on."""
        for one in self.processes():
            process.send_signal(one.identity(), signal.SIGCONT)

    def kill(self, pid: int | None) -> bool:
        """Kill one of its processes, or all where that is not known; return whether it was there."""
        found = [one for one in self.processes() if pid is None or one.pid == pid]
        return bool([one for one in found if process.send_signal(one.identity(), signal.SIGKILL)])

    def end(self) -> None:
        """Kill what is left of it."""
        self._all(signal.SIGKILL, lambda one: False)
        self._process.wait(_PAUSE * _LOOKS)

    def _all(self, number: signal.Signals, is_done: Callable[[Sighting], bool]) -> bool:
        """Send a signal to all processes until none is left for which it is not done: some fork meanwhile."""
        for _ in range(_LOOKS):
            left = [one for one in self.processes() if not is_done(one)]
            if not left:
                return True
            for one in left:
                process.send_signal(one.identity(), number)
            SystemClock().sleep(_PAUSE)
        return False
