"""What local writers tell each other beside their side file: a few words of it, mapped into each one's memory.

It is all advice, and every word holds only for a moment: whatever a stopped or killed process has left there does no
harm. The words are times since boot, in seconds.
"""

from __future__ import annotations

import math
import mmap
import os
import struct

_WORDS = struct.Struct("5d")
_RESERVED, _STINT, _WAITING, _OLDEST, _HURRYING = range(5)

RESERVED_FOR = 0.0003
"""Seconds for which the file is left to whom it is reserved for: who takes longer to come back is busy elsewhere."""
SAID_FOR = 0.005
"""Seconds for which it holds that somebody waits, or hurries; said again and again meanwhile."""
PRECEDENCE = 0.0005
"""Seconds for which the file, when a stint is over, is left to who has waited longest."""


class Slate:
    """The words of one side file.

    Args:
        words: its memory.
    """

    def __init__(self, words: mmap.mmap | bytearray) -> None:
        self._memory = words
        self._words = memoryview(words).cast("d")

    @classmethod
    def of(cls, handle: int) -> Slate:
        """Return the words of an open side file, which is made long enough; of this process alone where that fails."""
        try:
            if os.fstat(handle).st_size < _WORDS.size:
                # Written, not only made longer: without room on the disk the memory could not be written to.
                os.pwrite(handle, bytes(_WORDS.size), 0)
            return cls(mmap.mmap(handle, _WORDS.size))
        except (OSError, ValueError):
            return cls.blank()

    @classmethod
    def blank(cls) -> Slate:
        """Return words that only this process reads."""
        return cls(bytearray(_WORDS.size))

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()

    def reserve(self, now: float, stint_ends: float) -> None:
        """Say that the process that has just had its turn comes back at once, again and again until `stint_ends`."""
        self._words[_STINT] = stint_ends
        self._words[_RESERVED] = min(now + RESERVED_FOR, stint_ends)

    def is_reserved(self, now: float) -> bool:
        """Return whether somebody is to come back."""
        return now < self._words[_RESERVED] <= now + RESERVED_FOR

    def left_of_stint(self, now: float) -> float:
        """Return the seconds until the present stint ends; 0 or less when there is none."""
        return self._words[_STINT] - now

    def wait(self, now: float, since: float) -> None:
        """Say that somebody has waited for a turn since a time."""
        words = self._words
        if since < words[_OLDEST] or not self.somebody_waits(now):
            words[_OLDEST] = since
        words[_WAITING] = now + SAID_FOR

    def wait_no_more(self, since: float) -> None:
        """Say that who has waited since that time has its turn."""
        if self._words[_OLDEST] == since:
            self._words[_OLDEST] = math.inf

    def somebody_waits(self, now: float) -> bool:
        """Return whether somebody waits for a turn."""
        return now < self._words[_WAITING] <= now + SAID_FOR

    def is_next(self, now: float, since: float) -> bool:
        """Return whether who waits since that time may take what a stint has left: nobody has waited longer.

        Such a one may be stopped, and has precedence for a moment only.
        """
        if since <= self._words[_OLDEST] or not self.somebody_waits(now):
            return True
        free_since = max(self._words[_STINT], self._words[_RESERVED])
        return not free_since <= now < free_since + PRECEDENCE

    def hurry(self, now: float) -> None:
        """Say that somebody is to be let past."""
        self._words[_HURRYING] = now + SAID_FOR

    def hurry_no_more(self) -> None:
        """Say that nobody hurries; whoever else does says so again at once."""
        self._words[_HURRYING] = 0.0

    def somebody_hurries(self, now: float) -> bool:
        """Return whether somebody is to be let past."""
        return now < self._words[_HURRYING] <= now + SAID_FOR
