"""What supervisor, keeper and workers send each other: small JSON messages over sequenced-packet sockets.

Supervisor to keeper: `died` (with a `Death`), `drain`, `finish`. Keeper to supervisor: `go`, `refused`, `target`,
`noted` (a death is written), `abort`. Worker to keeper, over one shared socket: `idle` (and whether it had been woken
in vain), `batch`, `counts`.
"""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

Message = dict[str, Any]

SPARE_DESCRIPTORS = 256
_LARGEST = 65_536


class Link:
    """One end of a socket pair over which JSON messages travel whole; never blocks."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Link, Link]:
        """Return two ends that are connected."""
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(left), cls(right)

    @classmethod
    def attach(cls, fd: int) -> Link:
        """Return the end that was inherited as descriptor `fd`."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._end.fileno()

    def send(self, kind: str, **content: Any) -> bool:
        """Send one message; return False when the other end is gone or full."""
        try:
            self._end.send(json.dumps({"kind": kind, **content}).encode())
        except OSError:
            return False
        return True

    def receive(self) -> Iterator[Message | None]:
        """Yield the messages that are there; None, at the end, when the other end is gone."""
        while True:
            try:
                raw = self._end.recv(_LARGEST)
            except BlockingIOError:
                return
            except ConnectionError:
                raw = b""
            if not raw:
                yield None
                return
            yield json.loads(raw)

    def close(self) -> None:
        """Close this end."""
        self._end.close()


class GroupEnd(StrEnum):
    """What the group's row says of its end: nothing, that it was ordered, or that others took the group for lost."""

    NONE = ""
    ORDERED = "ordered"
    GIVEN_UP = "given_up"


class Reason(StrEnum):
    """Why a worker process ended."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    CLAIM_LOST = "claim_lost"
    CANCELLED = "cancelled"
    FENCED = "fenced"
    DRAIN_DEADLINE = "drain_deadline"
    SECOND_SIGNAL = "second_signal"
    WEDGED = "wedged"
    BLOCKING = "blocking"
    ABORTED = "aborted"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Death:
    """A worker process that ended without saying goodbye to the registry, or was ended.

    Attributes:
        worker_id, incarnation: who it was.
        reason: why.
        exit_code: None when a signal ended it.
        signal: the signal, if one did.
        peak_kb: its largest resident memory, in KiB.
        task_id, token: the execution that it is about, 0 when there was none, or nobody knows which of several.
        seconds: how long it had been executing that.
        timeout: the execution's timeout in seconds, 0 for none.
        retry_in: seconds until the next attempt; None when it was the last.
        beside: how many more tasks it executed at that moment: they are given back uncounted.
        out_of_memory: whether the kernel killed it for want of memory, for certain.
    """

    worker_id: str
    incarnation: str
    reason: Reason
    exit_code: int | None
    signal: int | None
    peak_kb: int
    task_id: int = 0
    token: int = 0
    seconds: float = 0.0
    timeout: float = 0.0
    retry_in: float | None = None
    beside: int = 0
    out_of_memory: bool = False

    def as_json(self) -> Message:
        """Return the death as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Message) -> Death:
        """Return the death that `as_json` described."""
        return cls(**{**value, "reason": Reason(value["reason"])})


def _allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files, as far as it may, to what a large group needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


@dataclass(frozen=True)
class Channels:
    """Descriptors that the processes of a group share.

    Attributes:
        board: the shared memory.
        lifeline: a pipe's read end, at its end when the supervisor is gone.
        lifeline_holder: its write end, the supervisor's alone.
        wakes: one event counter per slot, by which its worker is woken.
        notices: the workers' end of the socket to the keeper.
        hearing: the keeper's end of it.
    """

    board: int
    lifeline: int
    lifeline_holder: int
    wakes: tuple[int, ...]
    notices: int
    hearing: int

    @classmethod
    def open(cls, board: int, slots: int) -> Channels:
        """Make them, close-on-exec and non-blocking."""
        _allow_descriptors(slots + SPARE_DESCRIPTORS)
        lifeline, holder = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        notices, hearing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(
            board=board,
            lifeline=lifeline,
            lifeline_holder=holder,
            wakes=tuple(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(slots)),
            notices=notices.detach(),
            hearing=hearing.detach(),
        )

    def for_keeper(self) -> tuple[int, ...]:
        """Return what a keeper needs."""
        return (self.board, self.hearing, *self.wakes)

    def for_worker(self, slot: int) -> tuple[int, ...]:
        """Return what the worker in `slot` needs."""
        return (self.board, self.lifeline, self.notices, self.wakes[slot])

    def all(self) -> tuple[int, ...]:
        """Return every descriptor."""
        return (self.board, self.lifeline, self.lifeline_holder, self.notices, self.hearing, *self.wakes)

    def wake(self, slot: int) -> None:
        """Wake the worker in `slot`."""
        os.eventfd_write(self.wakes[slot], 1)
