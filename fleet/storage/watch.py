"""Noticing commits of other processes: inotify on the write-ahead log, then SQLite's own change counter."""

from __future__ import annotations

import ctypes
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from fleet.clock import boottime
from fleet.storage.sqlite import BUSY_TIMEOUT_MS, data_version

_IN_MODIFY = 0x2
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_POLL = 0.006
_SOONEST = 0.0002
_LATEST = 0.01


class SqliteWatch:
    """Watches a SQLite file.

    The log is written a moment before its commit can be seen, so after a notice the counter is read again for a short
    while. Where inotify is missing, the counter is polled.

    Args:
        path: the database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)
        self._connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_MS / 1000,
            check_same_thread=False,
        )
        self._inotify = _watch_file(path.resolve().with_name(path.resolve().name + "-wal"))
        self._noticed_at = 0.0
        self._version = data_version(self._connection)

    def attend(self) -> None:
        """Nothing is to be said: every commit shows."""

    def fileno(self) -> int | None:
        """Return the inotify descriptor, None where there is none."""
        return self._inotify

    def changed(self) -> bool:
        """Return whether another connection committed since the last call."""
        self._drain()
        version = data_version(self._connection)
        changed = version != self._version
        self._version = version
        if changed:
            self._noticed_at = 0.0
        return changed

    def poll_interval(self) -> float:
        """Return seconds between two looks: short after a notice whose commit does not show yet."""
        if self._inotify is None:
            return _POLL
        silence = boottime() - self._noticed_at
        # A durable commit shows only after its sync, which a busy disk may hold up: the longer, the more rarely asked.
        return min(max(_SOONEST, silence / 4), _LATEST) if silence < 2.0 else 5.0

    def obstacle(self) -> None:
        """Nothing keeps it from noticing."""

    def replaced(self) -> bool:
        """Return whether another file stands at the path."""
        return _identity(self._path) != self._identity

    def close(self) -> None:
        """Close the connection and the descriptor."""
        self._connection.close()
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def _drain(self) -> None:
        if self._inotify is None:
            return
        try:
            while os.read(self._inotify, 4096):
                self._noticed_at = boottime()
        except BlockingIOError:
            return


class PollingWatch:
    """Says at every look that something may have changed: for whoever has several connections to a server."""

    def attend(self) -> None:
        """Nothing is to be said."""

    def fileno(self) -> int | None:
        """Return None: there is no descriptor."""
        return None

    def changed(self) -> bool:
        """Return True."""
        return True

    def poll_interval(self) -> float:
        """Return seconds between two looks."""
        return 0.1

    def obstacle(self) -> None:
        """Nothing keeps it from looking."""

    def replaced(self) -> bool:
        """Return False: a server's database has no path."""
        return False

    def close(self) -> None:
        """Nothing is held."""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _watch_file(path: Path) -> int | None:
    """Return a non-blocking inotify descriptor that tells of writes to `path`, None where that is not to be had."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1") or not path.exists():
        return None
    handle: int = library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if handle < 0:
        return None
    if library.inotify_add_watch(handle, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(handle)
        return None
    return handle
