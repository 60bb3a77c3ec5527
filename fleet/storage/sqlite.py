"""SQLite's ways: files, locks, pragmas, and what its errors mean."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fleet.clock import Clock, SystemClock
from fleet.errors import DatabaseError
from fleet.storage import seal
from fleet.storage.access import unwritable
from fleet.storage.connections import FileConnections, MemoryConnection
from fleet.storage.copies import ReadOnlyFile
from fleet.storage.database import original
from fleet.storage.gate import WriterGate
from fleet.storage.sql import Runner
from fleet.storage.wire import Wire

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from fleet.storage.server.pipeline import Pipeline, Step

BUSY_TIMEOUT_MS = 10
"""Alike on every connection. Short: who waits longer comes back to Python, where waiting is fair and seen."""

OLDEST_SQLITE = (3, 38, 0)
OVERRIDE = "FLEET_ALLOW_NETWORK_FILESYSTEM"

_NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs", "lustre", "ncpfs")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SqliteWays:
    """How a SQLite file, or a database in memory, is used.

    Args:
        path: the file; None for memory.
        read_only: open it so that nothing can be written.
    """

    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        check_library()
        # SQLite keeps its side files beside the file that a link names; so is ours.
        self.path = path.resolve() if path else None
        self.shown = str(path) if path else ":memory:"
        self.shares_memory = path is None
        self.one_writer = True
        # The one connection to a database in memory may have a transaction of another thread open.
        self.commits_alone = path is not None and not read_only
        self._read_only = ReadOnlyFile(self.path) if self.path and read_only else None
        self.source = FileConnections(self._connect) if path else MemoryConnection(self._connect)
        self._gate = WriterGate(_beside(self.path, "-lock"), self.path) if self.path and not read_only else None

    def engine(self) -> Engine:
        """Return an engine: a small pool, or the one connection that is the database in memory."""
        from sqlalchemy import create_engine
        from sqlalchemy.pool import QueuePool, StaticPool

        if isinstance(self.source, MemoryConnection):
            return create_engine("sqlite://", creator=self.source.driver, poolclass=StaticPool)
        return create_engine(
            "sqlite://", creator=self._connect, poolclass=QueuePool, pool_size=2, max_overflow=30, pool_timeout=30
        )

    def _connect(self) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA foreign_keys=ON")
            connection.text_factory = _text
            return connection
        path, mode = self._placed(self.path)
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{mode}",
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_MS / 1000,
            check_same_thread=False,
        )
        try:
            if not self._read_only:
                _convert(connection)
            connection.execute("PRAGMA foreign_keys=ON")
            connection.text_factory = _text
        except BaseException:
            connection.close()
            raise
        return connection

    def _placed(self, path: Path) -> tuple[Path, str]:
        """Return which file to open, and with which words in its URI."""
        if self._read_only is None:
            return path, "mode=rw"
        try:
            return self._read_only.place()
        except OSError as error:
            raise DatabaseError(f"{self.shown}: a copy to read from cannot be made: {error.strerror}") from None

    def writing(self, on_wait: Callable[[], None], hurries: bool = False) -> AbstractContextManager[None]:
        """Return this process's turn among the local writers."""
        return self._gate.turn(on_wait, hurries=hurries) if self._gate else nullcontext()

    def begin_write(self, connection: Connection | Wire, durable: bool) -> None:
        """Take the write lock before anything is read."""
        self.press(connection, durable)
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def press(self, connection: Connection | Wire, durable: bool) -> None:
        """Choose how hard the next commit is pressed to disk."""
        level = "FULL" if durable else "NORMAL"
        if self.path is not None and connection.info.get("synchronous") != level:
            connection.exec_driver_sql(f"PRAGMA synchronous={level}")
            connection.info["synchronous"] = level

    def begin_read(self, connection: Connection | Wire) -> None:
        """Open a deferred transaction: its first read takes the snapshot."""
        connection.exec_driver_sql("BEGIN")

    def now(self, runner: Runner, clock: Clock) -> datetime:
        """Return the host's time."""
        return clock.now()

    def is_busy(self, error: BaseException) -> bool:
        """Return whether a lock stood in the way."""
        code = getattr(original(error), "sqlite_errorcode", None)
        return code is not None and code & 0xFF in _BUSY

    def undoes(self, error: BaseException) -> bool:
        """Return False: nothing is sent to a file."""
        return False

    def explain(self, error: BaseException) -> DatabaseError | None:
        """Return what an error says about the file, and what to do."""
        if isinstance(error, sqlite3.IntegrityError) and str(error).startswith(seal.SIGN):
            return seal.refusal(self.shown, str(error))
        if not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.IntegrityError):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = _ADVICE.get(code)
        if advice is None:
            return DatabaseError(f"{self.shown}: {error}")
        return DatabaseError(f"{self.shown}: {advice}{_owners(self.path) if code in _ACCESS else ''}")

    def close(self) -> None:
        """Close the side file, and take away what was copied to be read."""
        if self._gate:
            self._gate.close()
        if self._read_only is not None:
            self._read_only.close()

    def listen(self) -> None:
        """Nothing is told: the file shows what was committed."""

    def send(self, wire: Wire, steps: Sequence[Step]) -> Pipeline | None:
        """Return None: a file is in this very process."""
        return None

    def after_fork(self) -> None:
        """Open a side file of the child's own: an inherited descriptor would share its parent's lock."""
        if self._gate:
            self._gate = WriterGate(_beside(self.path, "-lock"), self.path)


_ACCESS = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "this file is not a SQLite database: give another --db-path",
    sqlite3.SQLITE_READONLY: "the database is read-only for this user",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_PERM: "the database may not be opened by this user",
    sqlite3.SQLITE_FULL: "the disk is full: free space, then try again",
    sqlite3.SQLITE_CORRUPT: "the database is damaged: stop the workers and restore a backup",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write: see the kernel's log",
}


def _text(raw: bytes) -> str:
    """Return a text of the file; bytes that are no UTF-8 become lone surrogates, which readers refuse or replace.

    A stranger may have written them. Without this the driver would fail the whole statement: one such row at the head
    of the queue, and nobody could claim anything.
    """
    return raw.decode("utf-8", "surrogateescape")


def _beside(path: Path | None, suffix: str) -> Path:
    if path is None:
        raise ValueError("a database in memory has no side files")
    return path.with_name(path.name + suffix)


def _owners(path: Path | None) -> str:
    """Return which of the files this user may not write, and what to do."""
    if path is None:
        return ""
    return unwritable((path, _beside(path, "-wal"), _beside(path, "-shm"), path.parent))


def check_library() -> None:
    """Raise DatabaseError when the SQLite library is older than the SQL used here."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise DatabaseError(
            f"SQLite {sqlite3.sqlite_version} is too old: {wanted} or newer is needed; use a Python linked with one"
        )


def _convert(connection: sqlite3.Connection) -> None:
    """Make an empty file return freed pages later, and any file use the write-ahead log.

    The busy timeout is set already. Of many first openers of a fresh file some are refused at once, whatever the
    timeout; and another's conversion is as good as one's own.
    """
    clock = SystemClock()
    for attempt in range(200):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                # Only before the first table and before the write-ahead log; later it is ignored.
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or attempt == 199:
                raise
            clock.sleep(0.005)


def create_file(path: Path) -> bool:
    """Make an empty database file, readable and writable by its owner alone from the first moment.

    Side files that stand there without their database belong to one that was moved or removed, perhaps under running
    processes, which still have them mapped: a new database that shared them would be damaged. The log may hold the last
    commits of one that was moved, so it is kept under another name (`-wal.stale`).

    Returns:
        False when it was there already (another process may have just made it).

    Raises:
        DatabaseError: it cannot be made there.
    """
    try:
        with _sole_creator(path.parent) as alone:
            if alone and not path.exists():
                _put_aside_side_files(path)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return True
    except FileExistsError:
        return False
    except OSError as error:
        raise DatabaseError(f"{path}: the database cannot be created: {error.strerror}") from None


def _put_aside_side_files(path: Path) -> None:
    log = _beside(path, "-wal")
    if log.exists():
        log.replace(_beside(path, "-wal.stale"))
    _beside(path, "-shm").unlink(missing_ok=True)


@contextmanager
def _sole_creator(directory: Path) -> Iterator[bool]:
    """Let one process at a time make a database in a directory; give False where the directory cannot be locked."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _is_locked(handle)
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def check_file(path: Path, read_only: bool) -> None:
    """Raise DatabaseError when the path cannot be a usable database; say what to do."""
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory: give the path of a database file, for example {path / 'fleet.db'}")
    if not path.is_file():
        raise DatabaseError(f"{path} is not a regular file")
    if not os.access(path, os.R_OK):
        raise DatabaseError(f"{path}: the database may not be read by this user{_owners(path)}")
    if not read_only and (blocked := _owners(path)):
        raise DatabaseError(f"{path}: the database is read-only for this user{blocked}")
    filesystem = _filesystem_of(path)
    if filesystem.startswith(_NETWORK_FILESYSTEMS) and not os.environ.get(OVERRIDE):
        raise DatabaseError(
            f"{path} is on a network file system ({filesystem}), where SQLite's locks do not work between hosts: "
            f"use PostgreSQL, or set {OVERRIDE}=1 if only this host uses the file"
        )


@cache
def _filesystem_of(path: Path) -> str:
    """Return the type of the file system that holds `path`, "" where unknown; looked up once in a process."""
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    resolved = str(path.resolve())
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4]
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def data_version(connection: Any) -> int:
    """Return a number that changes when another connection commits."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
