"""Processes of this host: identity, evidence of life, and signals that never hit a stranger.

A pid says little: it is reused after a reboot or a wrap, and every container has its own pid 1. The identity used here
is boot id + pid namespace + pid + start ticks (docs/ARCHITECTURE.md, Process identity).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fleet.clock import boottime
from fleet.domain.liveness import Life, ProcessIdentity

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STAT_SIZE = 4_096
_START_TICKS = 19
"""Where the start stands among the fields after the command name."""


@cache
def host_name() -> str:
    """Return this host's name."""
    return socket.gethostname()


@cache
def boot_id() -> str | None:
    """Return the kernel's id of this boot, or None where there is none (not Linux)."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux; elsewhere nothing happens)."""
    if hasattr(_library(), "prctl"):
        _library().prctl(option, value, 0, 0, 0)


@cache
def pid_namespace() -> str | None:
    """Return the id of this process's pid namespace, or None where unknown."""
    try:
        return os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return None


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name, up to the start; None without such a process."""
    try:
        # Without a file object: a scaler asks this of thousands of workers.
        handle = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(handle, _STAT_SIZE).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(handle)
    # The command name stands in parentheses and may itself contain spaces and parentheses.
    return text[text.rindex(")") + 2 :].split(None, _START_TICKS + 1)


def start_ticks(pid: int) -> int | None:
    """Return the process's start in clock ticks since boot, or None when unknown."""
    fields = _stat_fields(pid)
    return int(fields[_START_TICKS]) if fields else None


def state(pid: int) -> str | None:
    """Return the kernel's state letter (R, S, D, T, Z, ...), or None when there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def identify(pid: int | None = None) -> ProcessIdentity:
    """Return the identity of `pid`, or of this process."""
    pid = os.getpid() if pid is None else pid
    return ProcessIdentity(
        host=host_name(),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        start_ticks=start_ticks(pid),
    )


@dataclass(frozen=True, slots=True)
class Sighting:
    """A process as it was seen.

    Attributes:
        pid, start_ticks: which process.
        parent: its parent's pid.
        group: its process group.
        session: its session.
        state: the kernel's letter.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_ticks: int

    @property
    def lives(self) -> bool:
        """Whether it had not ended."""
        return self.state not in ("Z", "X")

    def identity(self) -> ProcessIdentity:
        """Return who it was, for a signal that hits nobody else."""
        return ProcessIdentity(host_name(), boot_id(), pid_namespace(), self.pid, self.start_ticks)


def sightings() -> dict[int, Sighting]:
    """Return all processes of this host that can be seen, by pid; not all of one moment."""
    return {pid: _sighting(pid, fields) for pid in _pids() if (fields := _stat_fields(pid))}


def _sighting(pid: int, fields: list[str]) -> Sighting:
    state, parent, group, session = fields[0], int(fields[1]), int(fields[2]), int(fields[3])
    return Sighting(pid, parent, group, session, state, int(fields[_START_TICKS]))


def name_of(pid: int) -> str:
    """Return a process's own short name, `?` when it is gone."""
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def age_of(seen: Sighting) -> float:
    """Return for how many seconds a process has been there, to a hundredth."""
    return max(0.0, boottime() - seen.start_ticks / _TICKS_PER_SECOND)


def shows_environment(pid: int) -> bool:
    """Return False for a process without any variable, as it is seen while it becomes another program.

    True too where it may not be read, or is gone.
    """
    try:
        return bool((_PROC / str(pid) / "environ").read_bytes())
    except OSError:
        return True


def variable_of(pid: int, name: str) -> str | None:
    """Return a variable of the environment that a process began with; None without it, or where it is not readable."""
    wanted = f"{name}=".encode()
    for entry in _environment(pid):
        if entry.startswith(wanted):
            return entry.removeprefix(wanted).decode("utf-8", "replace")
    return None


def life_of(identity: ProcessIdentity) -> Life:
    """Return whether the process is alive, dead or unknown, as far as this host can tell.

    Dead is certain: same boot and pid namespace, and the pid is free, a zombie, or another process's. A row without
    boot id, namespace or start ticks, or of another host, namespace or boot elsewhere, is unknown: its lease decides.
    """
    if identity.pid is None or identity.boot_id is None or identity.start_ticks is None:
        return Life.UNKNOWN
    if identity.boot_id != boot_id():
        # Same host name after a reboot proves death only where the host is the same machine; a name does not say that.
        return Life.UNKNOWN
    if identity.pid_namespace is None or identity.pid_namespace != pid_namespace():
        return Life.UNKNOWN
    fields = _stat_fields(identity.pid)
    if fields is None or fields[0] in "ZX":
        return Life.DEAD
    return Life.ALIVE if int(fields[_START_TICKS]) == identity.start_ticks else Life.DEAD


def is_dead(identity: ProcessIdentity) -> bool:
    """Return whether the process is certainly gone."""
    return life_of(identity) is Life.DEAD


def is_moving(identity: ProcessIdentity) -> bool:
    """Return whether the process is certainly alive here, and not stopped."""
    return life_of(identity) is Life.ALIVE and state(identity.pid or 0) not in ("T", "t", None)


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return False when it is not certainly alive here.

    The pidfd is opened before the identity is compared, so that a pid reused in between is never hit.
    """
    if identity.pid is None:
        return False
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        if life_of(identity) is not Life.ALIVE:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def find_by_environment(name: str, value: str) -> ProcessIdentity | None:
    """Return the process of this user whose environment holds NAME=VALUE, or None.

    Of several, as a process and the children that it forked, the leader of a session comes first. Processes of other
    users are not readable and are passed over.
    """
    wanted = f"{name}={value}".encode()
    found = [pid for pid in _pids() if wanted in _environment(pid) and state(pid) not in (None, "Z", "X")]
    leaders = [pid for pid in found if _session(pid) == pid]
    return identify((leaders or found)[0]) if found else None


def _pids() -> list[int]:
    return sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _session(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[3]) if fields else None
