"""^C, put off while it would fall between what is done and the note of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """^C, put off for the length of a block, however often it is asked for."""

    def __init__(self) -> None:
        self._asked = False

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Let the block come to its end before ^C raises KeyboardInterrupt; where ^C does something else, leave it."""
        usual = signal.getsignal(signal.SIGINT)
        if usual is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)
        self.heed()

    def heed(self) -> None:
        """Raise KeyboardInterrupt if ^C was put off: for waits within the block, in which nothing is half done."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
