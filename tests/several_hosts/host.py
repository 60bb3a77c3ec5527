"""A host: namespaces for its network, name, processes and mounts, with a clock and a boot id of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import procfs
from tests.processes.running import Running, wait_until
from tests.several_hosts.network import Link, Network, NotPermitted

ROOT = Path(__file__).parents[2]
STARTUP = Path(__file__).parent / "startup"

_FAKETIME = "faketime/libfaketimeMT.so.1"
_FAKETIME_DIRECTORIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64")

_BOOT = """
hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id || exit 1
trap '' CHLD  # the kernel collects what nobody waits for
echo up
exec sleep infinity
"""


def faketime_library() -> str:
    """Return the library that moves a process's wall clock.

    Raises:
        NotPermitted: it is not installed.
    """
    for directory in _FAKETIME_DIRECTORIES:
        if (library := Path(directory, _FAKETIME)).exists():
            return str(library)
    raise NotPermitted("libfaketime is not installed (package `faketime`)")


class Host:
    """A host of a network.

    Args:
        network: its network.
        name: its host name.
        number: which of the network's addresses it has.
        offset: seconds by which its wall clock is ahead.
        directory: for its files: its boot id, logs, output.

    Attributes:
        link: its link to the server.
        pid: its first process, with which all others end, as this machine counts.
    """

    def __init__(self, network: Network, name: str, number: int, offset: float, directory: Path) -> None:
        self._network = network
        self.name = name
        self._number = number
        self.offset = offset
        self._directory = directory
        self._clock = faketime_library()
        self._init: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self._started: list[_Entered] = []
        (directory / "output").mkdir(parents=True)
        (directory / "tmp").mkdir()

    def boot(self) -> None:
        """Bring it up, with nothing running on it; the kernel ends it when this process ends."""
        self.link: Link = self._network.connect(self.name, self._number)
        boot_id = self._directory / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        self._init = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{self.link.namespace}"),
                *("unshare", "--uts", "--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"),
                *("sh", "-c", _BOOT, "boot", self.name, str(boot_id)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._init.stdout is not None
        with self._init.stdout as output:
            said = output.readline().decode().strip()
        if said != "up":
            raise NotPermitted(f"a host's namespaces: {said or self._init.wait()}")
        (self.pid,) = _children(self._init.pid)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Running:
        """Start `python ARGUMENTS` on it, in a session of its own."""
        output = self._directory / "output" / f"{len(self._started)}.log"
        clock = {
            "LD_PRELOAD": self._clock,
            "FAKETIME": f"{self.offset:+.0f}",
            # Durations are the machine's own: CLOCK_MONOTONIC and CLOCK_BOOTTIME are the same on all hosts.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(STARTUP),
        }
        mine = {
            **environment,
            "TMPDIR": str(self._directory / "tmp"),
            "XDG_STATE_HOME": str(self._directory / "state"),
        }
        with open(output, "wb") as file:
            entering = subprocess.Popen(
                [
                    *("nsenter", f"--target={self.pid}", "--net", "--uts", "--pid", "--mount"),
                    *("env", f"--chdir={ROOT}", *(f"{name}={value}" for name, value in clock.items())),
                    *(sys.executable, *arguments),
                ],
                env=mine,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        running = _Entered(entering, output)
        self._started.append(running)
        return running

    def cut_off(self) -> None:
        """Let nothing to it and from it, in silence."""
        self.link.cut()

    def heal(self) -> None:
        """Let everything through again."""
        self.link.mend()

    def kill(self) -> None:
        """Take its power: it ends between two instructions, and tells nobody."""
        self.link.cut()
        self._end()

    def reboot(self) -> None:
        """Bring it up again after `kill`, under the same name and address, as another boot."""
        self.boot()

    def remove(self) -> None:
        """End all that runs on it, and remove it."""
        self._end()

    def processes(self) -> list[int]:
        """Return the pids, as this machine counts them, of what runs on it besides its first process."""
        there = _namespace(self.pid)
        if there is None:
            return []
        found = [int(entry.name) for entry in procfs.PROC.iterdir() if entry.name.isdigit()]
        return [pid for pid in found if pid != self.pid and _namespace(pid) == there and procfs.is_alive(pid)]

    def text(self) -> str:
        """Return all that was printed and logged on it."""
        logs = [*(self._directory / "output").iterdir(), *self._directory.glob("state/fleet/*.log")]
        return "\n".join(f"--- {self.name} {log.name}\n{log.read_text(errors='replace')}" for log in logs)

    def _end(self) -> None:
        if self._init is None:
            return
        # The kernel ends all others with the first process; without one yet, what was to become it ends.
        procfs.kill(self.pid or self._init.pid)
        self._init.wait()
        for running in self._started:
            running.go_on()
            running.wait()
        self.link.remove()
        self._init, self.pid = None, 0


class _Entered(Running):
    """A process on a host: what the test holds is the one that brought it there, and ends as it does."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        super().__init__(process, output)
        wait_until(lambda: self._find() or self.ended(), "the process is on its host")
        self.pid = self._find() or 0

    def _find(self) -> int | None:
        return next(iter(_children(self._process.pid)), None)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.pid and not self.ended():
            os.kill(self.pid, number)
        if number == signal.SIGCONT:
            self.go_on()

    def go_on(self) -> None:
        """Let go on what brought it there: it stops itself where the process stops."""
        self._process.send_signal(signal.SIGCONT)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in (procfs.PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(procfs.PROC / f"{pid}/ns/pid")
    except OSError:
        return None
