"""What a shell command writes: the newest part in a file, and the end of that in memory."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fleet.clock import SystemClock
from fleet.domain.jsontext import printable

TAIL_BYTES = 64 * 1024
FILE_BYTES = 10 * 1024 * 1024
"""The most that a file holds; when it is full, its older half is dropped."""

MAX_FILES = 1_000
MAX_AGE = 7 * 86_400.0
MAX_TOTAL_BYTES = 1024 * 1024 * 1024
"""How many files of ended commands are kept, for how many seconds, and how large all of them may be together."""

MAX_LINE_CHARACTERS = 500

_CHUNK = 1024 * 1024
_log = logging.getLogger("fleet.worker")


class Output:
    """The output of one command.

    The file is made with the first byte. A disk that is full costs the rest of the file, not the command.

    Args:
        path: the file, which must not be there.

    Attributes:
        total: how many bytes were written.
        path: the file; None when there is none.
    """

    def __init__(self, path: Path) -> None:
        self._wanted = path
        self._end = bytearray()
        self._descriptor: int | None = None
        self._size = 0
        self.total = 0
        self.path: Path | None = None

    def write(self, data: bytes) -> None:
        """Take what the command has written."""
        if not self.total:
            self._guarded(self._open)
        self.total += len(data)
        self._end += data
        if len(self._end) > 2 * TAIL_BYTES:
            del self._end[:-TAIL_BYTES]
        self._guarded(lambda: self._append(data))

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            _log.warning("output of a command is not kept in %s: %s", self._wanted, error.strerror or error)
            self.close()

    def _open(self) -> None:
        make_directory(self._wanted.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._wanted, flags, 0o600)
        self.path = self._wanted
        # Held while the command runs: a file that is locked is not cleared away.
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            return
        if self._size + len(data) > FILE_BYTES:
            self._drop_older_half(self._descriptor)
        _write_at(self._descriptor, data, self._size)
        self._size += len(data)

    def _drop_older_half(self, descriptor: int) -> None:
        kept = min(self._size, FILE_BYTES // 2)
        dropped = self._size - kept
        for at in range(0, kept, _CHUNK):
            _write_at(descriptor, os.pread(descriptor, min(_CHUNK, kept - at), dropped + at), at)
        os.ftruncate(descriptor, kept)
        self._size = kept

    def close(self) -> None:
        """Close the file; nothing further is kept in it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def tail(self) -> str:
        """The last TAIL_BYTES as text that any database stores; what is no UTF-8 is replaced."""
        end = bytes(self._end[-TAIL_BYTES:])
        if self.total > len(end):
            end = _from_a_character_on(end)
        return printable(end.decode("utf-8", "replace"), TAIL_BYTES)

    @property
    def last_line(self) -> str:
        """The last line that is not blank, cut to its beginning."""
        lines = [line for line in self.tail[-10 * MAX_LINE_CHARACTERS :].splitlines() if line.strip()]
        return " ".join(lines[-1].split())[:MAX_LINE_CHARACTERS] if lines else ""


def _from_a_character_on(data: bytes) -> bytes:
    """Return `data` without the rest of a character at its beginning."""
    start = 0
    while start < 3 and start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _write_at(descriptor: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written


def make_directory(path: Path) -> None:
    """Make a directory of logs, and the one that it is in, readable by their owner alone."""
    for directory in (path.parent, path):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def clear_away(directory: Path) -> None:
    """Delete the oldest files of commands that have ended: those that are too old, too many, or too large together."""
    now = SystemClock().now().timestamp()
    total = 0
    for number, (found, path) in enumerate(_newest_first(directory)):
        total += found.st_size
        if number >= MAX_FILES or now - found.st_mtime > MAX_AGE or total > MAX_TOTAL_BYTES:
            _delete_unless_in_use(path)


def _newest_first(directory: Path) -> list[tuple[os.stat_result, Path]]:
    return sorted(_files(directory), key=lambda file: file[0].st_mtime, reverse=True)


def _files(directory: Path) -> Iterator[tuple[os.stat_result, Path]]:
    with suppress(OSError):
        for entry in os.scandir(directory):
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False), Path(entry.path)


def _delete_unless_in_use(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)
