"""What supervisor, keeper and workers of one group tell each other through shared memory: one file, mapped by all."""

from __future__ import annotations

import mmap
import os
from functools import lru_cache

from fleet.domain.spreading import ALLOCATIONS, PULLED, Allocation
from fleet.worker.record import WORD_BYTES, Cells, Word
from fleet.worker.seat import SEAT_WORDS, Seat
from fleet.worker.slot import OUTBOX_BYTES, SLOT_WORDS, Slot

_HEADER_WORDS = 32


class Board(Cells):
    """The group's shared memory: a header, one slot per worker, its seats, and the outboxes.

    Args:
        fd: the memory file; None makes a new one.
        slots: how many workers there can be.
        seats: how many tasks each executes at a time.
    """

    keeper_pulse = Word(0)
    watches_batches = Word(1)  # whether the keeper looks at batches often
    _allocate = Word(2)  # by the keeper: how claims spread, as an index of ALLOCATIONS
    _prefer_wait = Word(3)  # by the keeper: milliseconds

    def __init__(self, slots: int, seats: int = 1, fd: int | None = None) -> None:
        words = _HEADER_WORDS + slots * (SLOT_WORDS + seats * SEAT_WORDS)
        size = words * WORD_BYTES + slots * OUTBOX_BYTES
        if fd is None:
            fd = os.memfd_create("fleet-worker-group", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        self.fd = fd
        memory = memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED))
        cells = memory[: words * WORD_BYTES].cast("q")
        super().__init__(cells, 0)
        self.slots = tuple(
            Slot(
                cells,
                _HEADER_WORDS + number * SLOT_WORDS,
                _seats(cells, _HEADER_WORDS + slots * SLOT_WORDS + number * seats * SEAT_WORDS, seats),
                memory[size - ((slots - number) * OUTBOX_BYTES) :][:OUTBOX_BYTES],
                fd,
            )
            for number in range(slots)
        )

    @property
    def allocation(self) -> Allocation:
        """How claims of the group's pool spread, as the keeper learned it last."""
        return _allocation(self._allocate, self._prefer_wait)

    @allocation.setter
    def allocation(self, learned: Allocation) -> None:
        # A reader between the two sees the new wait with the old way, which is as good as either.
        self._prefer_wait = round(learned.prefer_wait * 1000)
        self._allocate = ALLOCATIONS.index(learned.allocate)


@lru_cache(maxsize=16)
def _allocation(allocate: int, milliseconds: int) -> Allocation:
    return Allocation(ALLOCATIONS[allocate], milliseconds / 1000) if allocate else PULLED


def _seats(cells: memoryview[int], base: int, count: int) -> tuple[Seat, ...]:
    return tuple(Seat(cells, base + position * SEAT_WORDS) for position in range(count))
