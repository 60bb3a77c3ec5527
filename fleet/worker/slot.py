"""The record of one worker process in its group's shared memory.

Every cell is one aligned 8-byte word, written by one process unless said otherwise, so that a single cell is never read
half-written. What spans cells (the held batch, the incarnation) is changed and read under the slot's lock: a POSIX lock
on the slot's bytes of the memory file, which ends with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fleet.domain.execution import Fence
from fleet.domain.task import MAX_BATCH
from fleet.worker.prefetch import BATCH_SECONDS
from fleet.worker.record import WORD_BYTES, Cells, Phase, Reading, Running, Word, nanoseconds, now_ns
from fleet.worker.seat import SEAT_WORDS, Seat

LASTING = nanoseconds(BATCH_SECONDS)
"""Nanoseconds from which on an execution lasts, so that the rest of its batch may be taken from its worker."""

SLOT_WORDS = 1056
OUTBOX_BYTES = 131_072
_HELD = 40
_PULSE, _PHASE, _COUNT, _INDEX, _CHANGES = 1, 2, 12, 13, 21
_BLANK = memoryview(bytes(SLOT_WORDS * WORD_BYTES)).cast("q")


class Slot(Cells):
    """The record of one worker process."""

    pid = Word(0)  # by the supervisor, as are the two that follow
    pulse = Word(1)  # by the worker from then on
    phase = Word(2)
    drain = Word(3)  # set to 1 by supervisor or keeper
    drain_deadline = Word(4)  # 0 for none
    idle = Word(5)  # set by the worker, cleared by the keeper when it wakes it
    unknown = Word(6)  # by the keeper: the part of the incarnation that the registry does not know
    revoked = Word(7)  # by the keeper, under the lock
    fence_at = Word(8)  # by worker (registering, reading) and keeper (beating); 0 for never
    done = Word(9)
    failed = Word(10)
    ending = Word(11)
    held_count = Word(12)
    held_index = Word(13)
    taken = Word(14)  # by the keeper, under the lock: how many ends of the batch it records
    _outbox_used = Word(15)
    _incarnation_high = Word(16)
    _incarnation_low = Word(17)
    replaced = Word(18)  # set to 1 by the keeper: end after the present task, another takes this place
    lane = Word(20)  # by the keeper: the lane of what was assigned to the worker last
    writes_since = Word(19)  # by the worker: since when it has, or asks for, the write lock; 0 when it does not
    ahead = Word(22)  # by the worker: 1 while it has claimed what it does not hold yet
    _changes = Word(21)  # by the worker: odd while it changes what it holds without the lock

    def __init__(
        self, cells: memoryview[int], base: int, seats: tuple[Seat, ...], outbox: memoryview[int], fd: int
    ) -> None:
        super().__init__(cells, base)
        self.seats = seats
        self._outbox = outbox
        self._fd = fd
        self._begun_at = 0

    def clear(self) -> None:
        """Make the record blank for a new process."""
        self._begun_at = 0
        self.cells[self.base : self.base + SLOT_WORDS] = _BLANK[:SLOT_WORDS]
        for seat in self.seats:
            seat.cells[seat.base : seat.base + SEAT_WORDS] = _BLANK[:SEAT_WORDS]

    def vacate(self) -> None:
        """Say that its process is gone, and that what it held is no affair of this group any more."""
        self.phase = Phase.VACANT
        self.idle = 0
        for seat in self.seats:
            seat.free()

    @property
    def is_concurrent(self) -> bool:
        """Whether the worker executes several tasks at a time."""
        return len(self.seats) > 1

    @property
    def executing(self) -> list[Seat]:
        """Seats in which something is executed."""
        return [seat for seat in self.seats if seat.is_executing]

    def seat_of(self, fence: Fence) -> Seat | None:
        """Return the seat of a claim, None when it is in none."""
        return next((seat for seat in self.seats if seat.is_taken and seat.fence == fence), None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the slot's lock."""
        self._lock(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._unlock()

    def _try_lock(self) -> bool:
        try:
            fcntl.lockf(
                self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, SLOT_WORDS * WORD_BYTES, self.base * WORD_BYTES, os.SEEK_SET
            )
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def _lock(self, how: int) -> None:
        fcntl.lockf(self._fd, how, SLOT_WORDS * WORD_BYTES, self.base * WORD_BYTES, os.SEEK_SET)

    def _unlock(self) -> None:
        self._lock(fcntl.LOCK_UN)

    # The worker's side

    def beats(self) -> None:
        """Show that the worker moves."""
        self.pulse = now_ns()

    def writes(self, begins: bool) -> None:
        """Say that the worker takes the write lock, or has given it back."""
        self.writes_since = now_ns() if begins else 0

    def enters(self, phase: Phase, now: int | None = None) -> None:
        """Say what the worker is doing; `now` is the boot time in nanoseconds, where the caller has it."""
        self.cells[self.base + _PULSE] = now_ns() if now is None else now
        self.cells[self.base + _PHASE] = phase

    def set_incarnation(self, incarnation: str) -> None:
        """Begin another life in this record; what the old one held is forgotten."""
        with self.locked():
            self._incarnation_high, self._incarnation_low = _halves(incarnation)
            self.held_count = 0
            self.held_index = -1
            for seat in self.seats:
                seat.free()

    def mark_unknown(self, incarnation: str) -> None:
        """Tell the worker that the registry does not know this incarnation (which it may have left meanwhile)."""
        self.unknown = _halves(incarnation)[1]

    @property
    def is_unknown(self) -> bool:
        """Whether the registry does not know the present incarnation."""
        return self.unknown != 0 and self.unknown == self._incarnation_low

    def take_seats(self, fences: Sequence[Fence]) -> list[Seat]:
        """Note claims that are executed beside each other, each in a free seat; return the seats in their order."""
        with self.locked():
            free = [seat for seat in self.seats if not seat.is_taken][: len(fences)]
            for seat, fence in zip(free, fences, strict=True):
                seat.take(fence)
        return free

    def stop_all(self) -> None:
        """Have all executions ended: none of their claims stands."""
        for seat in self.executing:
            seat.stop()

    def free_seats(self, fences: Iterable[Fence]) -> None:
        """Forget claims that are recorded, or given back."""
        gone = set(fences)
        with self.locked():
            for seat in self.seats:
                if seat.is_taken and seat.fence in gone:
                    seat.free()

    def hold(self, fences: Sequence[Fence], now: int | None = None, keep: int | None = None) -> None:
        """Note the claims of a batch, in the order of execution.

        Args:
            fences: the claims.
            now: the boot time in nanoseconds, where known.
            keep: where in the outbox the ends begin that are not recorded yet, None where there are none of those.

        The lock is needed only where the keeper may be taking the rest of the batch before away: see `begin`.
        """
        if keep is None and len(fences) == 1 and (now_ns() if now is None else now) - self._begun_at < LASTING // 2:
            self._hold_one(fences[0])
            return
        with self.locked():
            self.revoked = self.taken = 0
            self._keep(keep)
            self.held_index = -1
            for position, fence in enumerate(fences[:MAX_BATCH]):
                at = self.base + _HELD + 2 * position
                self.cells[at] = fence.task_id
                self.cells[at + 1] = fence.claim_token
            self.held_count = len(fences)

    def _keep(self, start: int | None) -> None:
        kept = b"" if start is None else bytes(self._outbox[start : self._outbox_used])
        self._outbox[: len(kept)] = kept
        self._outbox_used = len(kept)

    @property
    def noted_bytes(self) -> int:
        """How much of the outbox is in use."""
        return self._outbox_used

    def _hold_one(self, fence: Fence) -> None:
        cells, base = self.cells, self.base
        changes = cells[base + _CHANGES]
        cells[base + _CHANGES] = changes + 1
        self.revoked = self.taken = self._outbox_used = 0
        cells[base + _INDEX] = -1
        cells[base + _HELD] = fence.task_id
        cells[base + _HELD + 1] = fence.claim_token
        cells[base + _COUNT] = 1
        cells[base + _CHANGES] = changes + 2

    def begin(self, position: int, started: int, timeout: int, retry_in: int, grace: int = 0) -> bool:
        """Move on to the task at `position` of the batch; False when the keeper has given the rest back.

        The lock is needed only where the keeper may be taking the rest away, and that it does only while an execution
        lasts that began LASTING ago or longer: who began another one a moment ago has not been waited for.
        """
        if started - self._begun_at < LASTING // 2:
            self._move_to(position, started, timeout, retry_in, grace)
        else:
            with self.locked():
                if self.revoked or position >= self.held_count:
                    return False
                self._move_to(position, started, timeout, retry_in, grace)
        self._begun_at = started
        return True

    def _move_to(self, position: int, started: int, timeout: int, retry_in: int, grace: int) -> None:
        cells, base = self.cells, self.base
        at = base + _HELD + 2 * position
        cells[base + _INDEX] = position
        self.seats[0].take_and_begin(cells[at], cells[at + 1], started, timeout, retry_in, grace)
        cells[base + _PULSE] = started
        cells[base + _PHASE] = Phase.EXECUTING

    def end_of_execution(self, now: int) -> None:
        """Say that what was begun is over at this moment, and is being recorded."""
        self.seats[0].end()
        self.enters(Phase.RECORDING, now)

    def put_out(self, line: bytes) -> bool:
        """Note how a task of the batch ended, for the keeper to record should the next one last; False when full.

        Called between two executions, when the keeper does not look.
        """
        used = self._outbox_used
        if used + len(line) > OUTBOX_BYTES:
            return False
        self._outbox[used : used + len(line)] = line
        self._outbox_used = used + len(line)
        return True

    def empty_outbox(self) -> None:
        """Forget what was noted: it is recorded."""
        with self.locked():
            self.taken = self._outbox_used = 0

    # The keeper's side

    def cancel(self, fence: Fence) -> None:
        """Ask for the end of an execution, if it is executed here."""
        seat = self.seat_of(fence)
        if seat is not None:
            seat.cancel(fence)

    def stop(self, fence: Fence) -> None:
        """Have an execution ended whose claim is gone, if it is still executed here."""
        seat = self.seat_of(fence)
        if seat is not None:
            seat.stop()

    def revoke_rest(self, lasting: Fence) -> tuple[tuple[Fence, ...], list[bytes]] | None:
        """Take what is not begun from a batch, so that it can be given back: its holder cannot start any of it now.

        Args:
            lasting: the execution that lasts.

        Returns:
            What was taken, perhaps nothing, and the noted ends of what came before; None when that execution is over,
            or has not lasted for LASTING, or this was done already.
        """
        if not self._try_lock():
            return None
        try:
            seat = self.seats[0]
            if not seat.is_executing or self.revoked or lasting != seat.fence or now_ns() - seat.started < LASTING:
                return None
            rest = self._held()[self.held_index + 1 :]
            self.revoked = 1
            self.held_count = self.held_index + 1
            ended = bytes(self._outbox[: self._outbox_used]).splitlines()
            self.taken = len(ended)
            return rest, ended
        finally:
            self._unlock()

    def read(self) -> Reading | None:
        """Return the record as of one moment; None when its worker is just changing it."""
        if not self._try_lock():
            return None
        try:
            index, changes = self.held_index, self._changes
            reading = Reading(
                incarnation=self.incarnation,
                pid=self.pid,
                phase=Phase(self.phase),
                pulse=self.pulse,
                idle=bool(self.idle),
                held=self._held(),
                running=self._running(),
                done=self.done,
                failed=self.failed,
            )
            # The next of a batch may be begun, and the next claim be held, without the lock: then what was read is of
            # two executions.
            return reading if (self.held_index, self._changes) == (index, changes) and not changes & 1 else None
        finally:
            self._unlock()

    @property
    def incarnation(self) -> str:
        """The incarnation as hex text; empty before there is one."""
        if not (self._incarnation_high or self._incarnation_low):
            return ""
        mask = (1 << 64) - 1
        return f"{self._incarnation_high & mask:016x}{self._incarnation_low & mask:016x}"

    def _running(self) -> tuple[Running, ...]:
        running = (
            Running(seat.fence, seat.started, seat.timeout and seat.timeout + seat.grace) for seat in self.executing
        )
        return tuple(sorted(running, key=lambda one: one.started))

    def _held(self) -> tuple[Fence, ...]:
        if self.is_concurrent:
            return tuple(seat.fence for seat in self.seats if seat.is_taken)
        at = self.base + _HELD
        pairs = range(at, at + 2 * min(self.held_count, MAX_BATCH), 2)
        return tuple(Fence(self.cells[pair], self.cells[pair + 1]) for pair in pairs)


def _halves(incarnation: str) -> tuple[int, int]:
    raw = bytes.fromhex(incarnation)
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)
