"""The cells of shared memory, and what a worker's record says when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from fleet.clock import boottime
from fleet.domain.execution import Fence

WORD_BYTES = 8


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
    SIGNALLED = 5


class Word:
    """One cell of a record, at a fixed position."""

    def __init__(self, position: int) -> None:
        self._position = position

    def __get__(self, owner: Cells, kind: type[Any] | None = None) -> int:
        return owner.cells[owner.base + self._position]

    def __set__(self, owner: Cells, value: int) -> None:
        owner.cells[owner.base + self._position] = value


class Cells:
    """Words in shared memory, from `base` on."""

    def __init__(self, cells: memoryview[int], base: int) -> None:
        self.cells = cells
        self.base = base


@dataclass(frozen=True, slots=True)
class Running:
    """One execution as read at one moment; times in boot nanoseconds.

    Attributes:
        fence: its claim.
        started: when it began.
        timeout: its timeout, the grace after it included; 0 for none.
    """

    fence: Fence
    started: int
    timeout: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A slot as read at one moment; times in boot nanoseconds.

    Attributes:
        incarnation: the life that it is about.
        phase: what the worker is doing.
        held: the claims that it holds.
        running: what it executes, oldest first.
    """

    incarnation: str
    pid: int
    phase: Phase
    pulse: int
    idle: bool
    held: tuple[Fence, ...]
    running: tuple[Running, ...]
    done: int
    failed: int

    @property
    def is_registered(self) -> bool:
        """Whether the worker is in the registry, as far as it has said."""
        return self.phase in (Phase.IDLE, Phase.CLAIMING, Phase.EXECUTING, Phase.RECORDING)

    @property
    def executing(self) -> Fence | None:
        """The claim that is executed longest, None when none is."""
        return self.running[0].fence if self.running else None
