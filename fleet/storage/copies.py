"""Reading a SQLite file without writing anything, beside it either: a copy on read-only media, a backup."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

IMMUTABLE = "immutable=1"
SHARED = "mode=ro"


class ReadOnlyFile:
    """How a SQLite file is opened by who may not, or should not, write.

    Who reads a database in use shares its `-shm` file. Where there is none, SQLite would make it beside the file; a
    copy that nobody may write is not in use by anybody, and is read as it is. If its log still holds commits, what is
    read is a copy of both in a directory of this process's own: SQLite reads a log only with the right to keep a
    `-shm` file beside it.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: TemporaryDirectory[str] | None = None

    def place(self) -> tuple[Path, str]:
        """Return which file to open, and with which words in its URI.

        Raises:
            OSError: there is no room for a copy.
        """
        if self._own is not None:
            return Path(self._own.name) / self._path.name, SHARED
        if not self._is_copy():
            return self._path, SHARED
        if _is_empty(_log(self._path)):
            return self._path, IMMUTABLE
        return self._copied(), SHARED

    def close(self) -> None:
        """Take away what was copied."""
        if self._own is not None:
            self._own.cleanup()
            self._own = None

    def _is_copy(self) -> bool:
        """Return whether nobody uses this file to write.

        The superuser may write anything; where neither file nor directory has a mode that lets anybody write, that is
        not meant.
        """
        sealed = not self._path.stat().st_mode & 0o222
        if sealed and not self._path.parent.stat().st_mode & 0o222:
            return True
        in_use = self._path.with_name(self._path.name + "-shm").exists()
        return not in_use and (sealed or not os.access(self._path.parent, os.W_OK))

    def _copied(self) -> Path:
        # Whatever opens a file imports this module, and hardly anything copies one.
        import shutil
        from tempfile import TemporaryDirectory

        self._own = TemporaryDirectory(prefix="fleet-copy-", ignore_cleanup_errors=True)
        try:
            own = Path(self._own.name) / self._path.name
            shutil.copyfile(self._path, own)
            shutil.copyfile(_log(self._path), _log(own))
        except BaseException:
            self.close()
            raise
        return own


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _is_empty(log: Path) -> bool:
    return not log.exists() or log.stat().st_size == 0
