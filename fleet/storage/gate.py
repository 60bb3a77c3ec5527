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
from fleet.storage.slate import RESERVED_FOR, Slate

PATIENCE = 1.0
POLL = 0.00005
"""Seconds between two tries at first: with four times as many the luckiest of four writers had four times the turns of
the unluckiest, with these a tenth more."""
LATER = 0.0002
"""Seconds between two tries once `SOON` has passed: the holder is slow, and waiting costs less."""
SOON = 0.005
COURTESY = 0.02
"""Seconds of one wait in which a writer lets past who hurries: the wait for the turns of others does not count."""
STINT = 0.003
"""Seconds for which a process in a rush (one that does little else than write) takes turn after turn although others
wait. Each change of processes takes as long as several turns: the next one must wake up, and read anew what it knew of
the database."""


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
        self._slate = Slate.blank()
        self._rushes = False
        self._left_at = self._stint_ends = 0.0

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
            self._left_at = now = self._clock.boottime()
            if self._has_stint(now):
                self._slate.reserve(now, self._stint_ends)
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        if queued:
            self._threads.release()

    def close(self) -> None:
        """Close the side file (which stays, as the write-ahead log does)."""
        self._slate.close()
        self._slate = Slate.blank()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _take(self, on_wait: Callable[[], None], hurries: bool) -> bool:
        if self._handle is None:
            self._handle = self._open()
        if self._handle is None:
            return False
        now = self._clock.boottime()
        self._rushes = not hurries and now - self._left_at < RESERVED_FOR
        if not self._rushes:
            self._stint_ends = now + STINT
        if not self._stands_back(now) and self._try(self._handle, now, now, hurries):
            return True
        try:
            return self._wait(self._handle, now, on_wait, hurries)
        finally:
            if hurries:
                self._slate.hurry_no_more()

    def _stands_back(self, now: float) -> bool:
        """Return whether a stint is over and somebody waits."""
        if now < self._stint_ends:
            return False
        if self._slate.somebody_waits(now):
            return True
        self._stint_ends = now + STINT
        return False

    def _wait(self, handle: int, began: float, on_wait: Callable[[], None], hurries: bool) -> bool:
        now, courtesy = began, 0.0
        while not self._ignored:
            if hurries:
                self._slate.hurry(now)
            else:
                self._slate.wait(now, began)
            on_wait()
            self._clock.sleep(self._pause(now, now - began))
            before, now = now, self._clock.boottime()
            courtesy += now - before if self._stood_back else 0.0
            self._unheeded = self._unheeded or courtesy > COURTESY
            if self._try(handle, now, began, hurries):
                self._slate.wait_no_more(began)
                if not self._has_stint(now):
                    self._stint_ends = now + STINT
                return True
            self._ignored = now - began > PATIENCE
        return False

    def _pause(self, now: float, waited: float) -> float:
        if self._rushes and not self._has_stint(now) and POLL < (left := self._slate.left_of_stint(now)) <= STINT:
            return left
        return POLL if waited < SOON else LATER

    def _try(self, handle: int, now: float, since: float, hurries: bool) -> bool:
        """Take the side file if it is free, and nobody is to be let past."""
        self._stood_back = not hurries and self._lets_hurry(now)
        if self._stood_back or not (hurries or self._has_stint(now) or self._is_next(now, since)):
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

    def _lets_hurry(self, now: float) -> bool:
        """Return whether somebody hurries; one who was let past for long enough (it may be stopped) counts no more."""
        if self._slate.somebody_hurries(now):
            return not self._unheeded
        self._unheeded = False
        return False

    def _is_next(self, now: float, since: float) -> bool:
        """Return whether nobody is in its stint, or has waited for longer."""
        return not self._slate.is_reserved(now) and self._slate.is_next(now, since)

    def _has_stint(self, now: float) -> bool:
        """Return whether the stint is this process's own: it goes on when who hurried, or came in between, is gone."""
        return self._rushes and now < self._stint_ends

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
        self._slate = Slate.of(handle)
        return handle
