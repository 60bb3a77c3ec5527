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
POLL = 0.00005
"""Seconds between two tries at first: with four times as many the luckiest of four writers had four times the turns of
the unluckiest, with these a tenth more."""
LATER = 0.0002
"""Seconds between two tries once `SOON` has passed: the holder is slow, and waiting costs less."""
SOON = 0.005
COURTESY = 0.02
"""Seconds of one wait in which a writer lets past who hurries: the wait for the turns of others does not count."""


class Turn:
    """One turn to write, for the length of a block."""

    __slots__ = ("_gate", "_hurries", "_on_wait", "_place")

    def __init__(self, gate: WriterGate, on_wait: Callable[[], None], hurries: bool) -> None:
        self._gate = gate
        self._on_wait = on_wait
        self._hurries = hurries

    def __enter__(self) -> None:
        self._place = self._gate.enter(self._on_wait, self._hurries)

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
        self._unheeded = False
        self._stood_back = False

    def turn(self, on_wait: Callable[[], None], *, hurries: bool = False) -> Turn:
        """Return a block's wait for this process's turn, at most about a second, which holds it to the block's end.

        A holder may be stopped: who has waited that long goes past, and does not wait again before it has found the
        file free once.

        Args:
            on_wait: called from time to time meanwhile.
            hurries: whether others let it past, for some milliseconds: one enqueuer waits for its turn among many
                workers, whose turns are long and whose work is not held up by waiting.
        """
        return Turn(self, on_wait, hurries)

    def enter(self, on_wait: Callable[[], None], hurries: bool) -> tuple[bool, bool]:
        """Wait; return whether the place among this process's threads, and the side file, are held."""
        if not self._threads.acquire(timeout=PATIENCE):
            return False, False
        try:
            return True, self._take(on_wait, hurries)
        except BaseException:
            # ^C in the wait: this process goes on, and its next writer waits for nobody.
            self._threads.release()
            raise

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

    def _take(self, on_wait: Callable[[], None], hurries: bool) -> bool:
        if self._handle is None:
            self._handle = self._open()
        if self._handle is None:
            return False
        if self._try(self._handle, polite=not hurries):
            return True
        try:
            return self._wait(self._handle, on_wait, hurries)
        finally:
            if hurries:
                _announce(self._handle, False)

    def _wait(self, handle: int, on_wait: Callable[[], None], hurries: bool) -> bool:
        began = now = self._clock.boottime()
        waited = courtesy = 0.0
        while not self._ignored:
            if hurries:
                _announce(handle, True)
            on_wait()
            self._clock.sleep(POLL if waited < SOON else LATER)
            before, now = now, self._clock.boottime()
            waited = now - began
            courtesy += now - before if self._stood_back else 0.0
            self._unheeded = self._unheeded or courtesy > COURTESY
            if self._try(handle, polite=not hurries):
                return True
            self._ignored = waited > PATIENCE
        return False

    def _try(self, handle: int, *, polite: bool) -> bool:
        """Take the side file if it is free, and nobody is to be let past."""
        self._stood_back = polite and self._lets_past(handle)
        if self._stood_back:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without flock: SQLite's lock and the jitter of its pollers must do.
            self._ignored = True
            return False
        self._ignored = False
        return True

    def _lets_past(self, handle: int) -> bool:
        """Return whether somebody hurries; one who was let past for long enough (it may be stopped) counts no more."""
        if not _is_announced(handle):
            self._unheeded = False
        elif not self._unheeded:
            return True
        return False

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


# Who hurries says so by a lock on the file's first byte: it ends with its process, and needs no room in the file.
def _announce(handle: int, waits: bool) -> None:
    # Somebody else may have said so, or be asking: either way another try comes soon.
    with suppress(OSError):
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if waits else fcntl.LOCK_UN, 1)


def _is_announced(handle: int) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    fcntl.lockf(handle, fcntl.LOCK_UN, 1)
    return False
