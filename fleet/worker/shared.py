"""What supervisor, keeper and workers of one group tell each other through shared memory.

One memory file, mapped by all of them. Every cell is one aligned 8-byte word, written by one process unless said
otherwise, so that a single cell is never read half-written. What spans cells (the held batch, the incarnation) is
changed and read under the slot's lock: a POSIX lock on the slot's bytes of the same file, which ends with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from fleet.clock import boottime
from fleet.domain.task import MAX_BATCH, Fence

_HEADER_WORDS = 32
_SLOT_WORDS = 256
_HELD = 40
_WORD = 8


def nanoseconds(seconds: float) -> int:
    """Return `seconds` as whole nanoseconds, the unit of times in shared memory."""
    return int(seconds * 1e9)


def now_ns() -> int:
    """Return the boot time in nanoseconds."""
    return nanoseconds(boottime())


class Phase(IntEnum):
    """What a worker is doing."""

    VACANT = 0
    STARTING = 1
    IDLE = 2
    CLAIMING = 3
    EXECUTING = 4
    RECORDING = 5
    ENDED = 6


class Ending(IntEnum):
    """Why a worker ends by itself."""

    NONE = 0
    DRAINED = 1
    RECYCLED = 2
    EMPTY = 3
    REFUSED = 4


class Word:
    """One cell of a record, at a fixed position."""

    def __init__(self, position: int) -> None:
        self._position = position

    def __get__(self, owner: _Cells, kind: type[Any] | None = None) -> int:
        return owner.cells[owner.base + self._position]

    def __set__(self, owner: _Cells, value: int) -> None:
        owner.cells[owner.base + self._position] = value


class _Cells:
    def __init__(self, cells: memoryview[int], base: int) -> None:
        self.cells = cells
        self.base = base


@dataclass(frozen=True, slots=True)
class Reading:
    """A slot as read at one moment; times in boot nanoseconds.

    Attributes:
        incarnation: the life that it is about.
        phase: what the worker is doing.
        held: the claims that it holds.
        task_id, token: what it executes, 0 when nothing.
    """

    incarnation: str
    pid: int
    phase: Phase
    pulse: int
    idle: bool
    held: tuple[Fence, ...]
    task_id: int
    token: int
    started: int
    timeout: int
    done: int
    failed: int

    @property
    def is_registered(self) -> bool:
        """Whether the worker is in the registry, as far as it has said."""
        return self.phase in (Phase.IDLE, Phase.CLAIMING, Phase.EXECUTING, Phase.RECORDING)

    @property
    def executing(self) -> Fence | None:
        """The claim that is being executed, None when none is."""
        return Fence(self.task_id, self.token) if self.phase is Phase.EXECUTING else None


class Slot(_Cells):
    """The record of one worker process."""

    pid = Word(0)  # by the supervisor, as are the two that follow
    pulse = Word(1)  # by the worker from then on
    phase = Word(2)
    drain = Word(3)  # set to 1 by supervisor or keeper
    drain_deadline = Word(4)  # 0 for none
    idle = Word(5)  # set by the worker, cleared by the keeper when it wakes it
    unknown = Word(6)  # by the keeper: the part of the incarnation that the registry does not know
    stop_task = Word(7)  # by the keeper: an execution whose claim is gone
    stop_token = Word(8)
    revoked = Word(9)  # by the keeper, under the lock
    task_id = Word(10)  # by the worker, before the phase becomes EXECUTING
    token = Word(11)
    started = Word(12)
    timeout = Word(13)  # 0 for none
    retry_in = Word(14)  # if the attempt dies; negative when it was the last
    lease_end = Word(15)  # by worker (registering) and keeper (beating)
    fence_at = Word(16)  # by the keeper; 0 for never
    done = Word(17)
    failed = Word(18)
    ending = Word(19)
    held_count = Word(20)
    held_index = Word(21)
    _incarnation_high = Word(22)
    _incarnation_low = Word(23)

    def __init__(self, cells: memoryview[int], base: int, fd: int) -> None:
        super().__init__(cells, base)
        self._fd = fd

    def clear(self) -> None:
        """Make the record blank for a new process."""
        for position in range(_SLOT_WORDS):
            self.cells[self.base + position] = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the slot's lock."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SLOT_WORDS * _WORD, self.base * _WORD, os.SEEK_SET)
        try:
            yield
        finally:
            self._unlock()

    def _try_lock(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _SLOT_WORDS * _WORD, self.base * _WORD, os.SEEK_SET)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def _unlock(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, _SLOT_WORDS * _WORD, self.base * _WORD, os.SEEK_SET)

    # The worker's side

    def beats(self) -> None:
        """Show that the worker moves."""
        self.pulse = now_ns()

    def enters(self, phase: Phase) -> None:
        """Say what the worker is doing."""
        self.pulse = now_ns()
        self.phase = phase

    def set_incarnation(self, incarnation: str) -> None:
        """Begin another life in this record; what the old one held is forgotten."""
        with self.locked():
            self._incarnation_high, self._incarnation_low = _halves(incarnation)
            self.held_count = 0
            self.held_index = -1

    def mark_unknown(self, incarnation: str) -> None:
        """Tell the worker that the registry does not know this incarnation (which it may have left meanwhile)."""
        self.unknown = _halves(incarnation)[1]

    @property
    def is_unknown(self) -> bool:
        """Whether the registry does not know the present incarnation."""
        return self.unknown != 0 and self.unknown == self._incarnation_low

    def hold(self, fences: Sequence[Fence]) -> None:
        """Note the claims of a batch, in the order of execution."""
        with self.locked():
            self.revoked = 0
            self.held_index = -1
            for position, fence in enumerate(fences[:MAX_BATCH]):
                at = self.base + _HELD + 2 * position
                self.cells[at] = fence.task_id
                self.cells[at + 1] = fence.claim_token
            self.held_count = len(fences)

    def begin(self, position: int, started: int, timeout: int, retry_in: int) -> bool:
        """Move on to the task at `position` of the batch; False when the keeper has given the rest back."""
        with self.locked():
            if self.revoked or position >= self.held_count:
                return False
            self.held_index = position
            at = self.base + _HELD + 2 * position
            self.task_id, self.token = self.cells[at], self.cells[at + 1]
        self.started = started
        self.timeout = timeout
        self.retry_in = retry_in
        self.enters(Phase.EXECUTING)
        return True

    # The keeper's side

    def revoke_rest(self, lasting: Fence) -> tuple[Fence, ...] | None:
        """Take what is not begun from a batch, so that it can be given back: its holder cannot start any of it now.

        Args:
            lasting: the execution that lasts.

        Returns:
            What was taken, perhaps nothing; None when that execution is over or this was done before.
        """
        if not self._try_lock():
            return None
        try:
            if self.phase != Phase.EXECUTING or self.revoked or lasting != Fence(self.task_id, self.token):
                return None
            rest = self._held()[self.held_index + 1 :]
            self.revoked = 1
            self.held_count = self.held_index + 1
            return rest
        finally:
            self._unlock()

    def read(self) -> Reading | None:
        """Return the record as of one moment; None when its worker is just changing it."""
        if not self._try_lock():
            return None
        try:
            return Reading(
                incarnation=self.incarnation,
                pid=self.pid,
                phase=Phase(self.phase),
                pulse=self.pulse,
                idle=bool(self.idle),
                held=self._held(),
                task_id=self.task_id,
                token=self.token,
                started=self.started,
                timeout=self.timeout,
                done=self.done,
                failed=self.failed,
            )
        finally:
            self._unlock()

    @property
    def incarnation(self) -> str:
        """The incarnation as hex text; empty before there is one."""
        if not (self._incarnation_high or self._incarnation_low):
            return ""
        mask = (1 << 64) - 1
        return f"{self._incarnation_high & mask:016x}{self._incarnation_low & mask:016x}"

    def _held(self) -> tuple[Fence, ...]:
        at = self.base + _HELD
        pairs = range(at, at + 2 * min(self.held_count, MAX_BATCH), 2)
        return tuple(Fence(self.cells[pair], self.cells[pair + 1]) for pair in pairs)


def _halves(incarnation: str) -> tuple[int, int]:
    raw = bytes.fromhex(incarnation)
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)


class Board(_Cells):
    """The group's shared memory: a header and one slot per worker.

    Args:
        fd: the memory file; None makes a new one.
        slots: how many workers there can be.
    """

    keeper_pulse = Word(0)
    watches_batches = Word(1)  # whether the keeper looks at batches often

    def __init__(self, slots: int, fd: int | None = None) -> None:
        size = (_HEADER_WORDS + slots * _SLOT_WORDS) * _WORD
        if fd is None:
            fd = os.memfd_create("fleet-worker-group", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        self.fd = fd
        cells = memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED)).cast("q")
        super().__init__(cells, 0)
        self.slots = tuple(Slot(cells, _HEADER_WORDS + slot * _SLOT_WORDS, fd) for slot in range(slots))
