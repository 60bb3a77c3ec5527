"""A queue for local writers: flock on a side file, so that writers of one host take turns.

SQLite's own busy handler is unfair: of many writers the luckiest gets thousands of turns to the unluckiest's one. The
side file is a courtesy, not the lock: writers that do not know it are held off by SQLite itself.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fleet.clock import SystemClock

PATIENCE = 1.0
POLL = 0.0002


class Turn:
    """One turn to write, for the length of a block."""

    __slots__ = ("_gate", "_on_wait", "_place")

    def __init__(self, gate: WriterGate, on_wait: Callable[[], None]) -> None:
        self._gate = gate
        self._on_wait = on_wait

    def __enter__(self) -> None:
        self._place = self._gate.enter(self._on_wait)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._gate.leave(*self._place)


class WriterGate:
    """One process's place at the side file.

    Args:
        path: the side file; made (0600) when it is missing.
        database: the file that it stands beside; its owner gets a side file that root makes.
    """

    def __init__(self, path: Path, database: Path | None = None) -> None:
        self._path = path
        self._database = database
        self._clock = SystemClock()
        self._threads = threading.Lock()
        self._handle: int | None = None
        self._ignored = False

    def turn(self, on_wait: Callable[[], None]) -> Turn:
        """Return a block's wait for this process's turn, at most about a second, which holds it to the block's end.

        A holder may be stopped: who has waited that long goes past, and does not wait again before it has found the
        file free once.
        """
        return Turn(self, on_wait)

    def enter(self, on_wait: Callable[[], None]) -> tuple[bool, bool]:
        """Wait; return whether the place among this process's threads, and the side file, are held."""
        queued = self._threads.acquire(timeout=PATIENCE)
        return queued, queued and self._take(on_wait)

    def leave(self, queued: bool, held: bool) -> None:
        """Give up what `enter` said is held."""
        if held and self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        if queued:
            self._threads.release()

    def close(self) -> None:
        """Close the side file (which stays, as the write-ahead log does)."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _take(self, on_wait: Callable[[], None]) -> bool:
        if self._handle is None:
            self._handle = self._open()
        if self._handle is None:
            return False
        deadline = None
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._ignored:
                    return False
                if deadline is None:
                    deadline = self._clock.boottime() + PATIENCE
                elif self._clock.boottime() > deadline:
                    self._ignored = True
                    return False
                on_wait()
                self._clock.sleep(POLL)
            except OSError:
                # A file system without flock: SQLite's lock and the jitter of its pollers must do.
                return False
            else:
                self._ignored = False
                return True

    def _open(self) -> int | None:
        """Open the side file; None where this user may not, or there is no room: it can be done without."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        if os.geteuid() == 0 and self._database is not None:
            # As SQLite does with its own side files: what root makes must not shut the owner out.
            with suppress(OSError):
                owner = self._database.stat()
                os.fchown(handle, owner.st_uid, owner.st_gid)
        return handle
