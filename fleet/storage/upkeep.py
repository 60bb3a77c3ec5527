"""Giving back to the operating system what deleted rows have left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.clock import SystemClock
from fleet.errors import ConflictError, DatabaseError
from fleet.storage.database import Database, Transaction
from fleet.storage.sql import Statement

_LIVE = Statement(
    "SELECT count(*) FROM worker_registry WHERE status IN ('active', 'terminating') AND lease_expires_at >= :now"
)
_PAGE_SIZE = Statement("PRAGMA page_size")
_PAGES = Statement("PRAGMA page_count")
_FREE_PAGES = Statement("PRAGMA freelist_count")
_MODE = Statement("PRAGMA auto_vacuum")
_RETURN_PAGE = Statement("PRAGMA incremental_vacuum(1)")
_TRUNCATE_LOG = Statement("PRAGMA wal_checkpoint(TRUNCATE)")
_KEEP_RETURNING = Statement("PRAGMA auto_vacuum = INCREMENTAL")
_REWRITE = Statement("VACUUM")
_SIZE = Statement(
    """SELECT CAST(sum(pg_total_relation_size(CAST(name AS regclass))) AS bigint)
    FROM unnest(CAST(:tables AS text[])) AS name"""
)

UNTIMED = Statement("SELECT 1", "SET statement_timeout TO DEFAULT")
"""Said before what may take long: the server's own limit, if it has one, counts."""

LARGE_LOG = 64 * 1024 * 1024
"""Bytes of the write-ahead log above which maintenance empties it: SQLite reuses it, and never shortens it."""

_INCREMENTAL = 2
_PAGES_AT_A_TIME = 500
_LOG_TRIES = 40
_LOG_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Gain:
    """What an upkeep has given back.

    Attributes:
        bytes_before: the size on disk, the write-ahead log included.
        bytes_after: the same afterwards.
        free_bytes: what lies unused inside the file still; new rows use it again.
        returns_pages: whether the file can give back pages without being written anew.
    """

    bytes_before: int
    bytes_after: int
    free_bytes: int = 0
    returns_pages: bool = True


def live_workers(transaction: Transaction) -> int:
    """Return how many workers are within their lease, and have not stopped."""
    return int(transaction.value(_LIVE, now=transaction.now))


def vacuum_file(database: Database, path: Path, *, full: bool, force: bool) -> Gain:
    """Give back the free pages of a SQLite file, and empty its write-ahead log.

    Args:
        database: the database in the file.
        path: the file.
        full: write the whole file anew: this also orders it, and makes an old file able to return pages; nobody else
            writes meanwhile, and it needs as much space again, twice.
        force: do the latter even while workers are live.

    Raises:
        ConflictError: workers are live, and `full` without `force` is asked for.
        DatabaseError: the disk has too little space for `full`.
    """
    before = _size_of(path)
    if full:
        _check_nobody_waits(database, force)
        _check_space(database, path)
        database.outside(_KEEP_RETURNING, _REWRITE)
        # They would go on with what they know of the old form.
        database.close_idle()
    mode, page_size = database.read(lambda transaction: (transaction.value(_MODE), transaction.value(_PAGE_SIZE)))
    if mode == _INCREMENTAL:
        while database.write(return_pages):
            pass
    _truncate_log(database)
    free = int(database.read(lambda transaction: transaction.value(_FREE_PAGES)))
    return Gain(before, _size_of(path), free * int(page_size), bool(mode))


def return_pages(transaction: Transaction, limit: int = _PAGES_AT_A_TIME) -> bool:
    """Give back up to `limit` free pages of a SQLite file; return whether there are more, and it helped."""
    free = int(transaction.value(_FREE_PAGES))
    # Python's driver steps this pragma once, which returns one page, whatever number it is given.
    for _ in range(min(free, limit)):
        transaction.rows(_RETURN_PAGE)
    return 0 < int(transaction.value(_FREE_PAGES)) < free


def _truncate_log(database: Database) -> None:
    """Empty the write-ahead log; who reads an old snapshot all the time keeps it from that."""
    clock = SystemClock()
    for _ in range(_LOG_TRIES):
        [(busy, *_)] = database.outside(_TRUNCATE_LOG)
        if not busy:
            return
        clock.sleep(_LOG_PAUSE)


def trim_log(database: Database, path: Path) -> bool:
    """Empty a write-ahead log above LARGE_LOG bytes; return whether it was tried. Readers are not waited for."""
    if _log_of(path) < LARGE_LOG:
        return False
    database.outside(_TRUNCATE_LOG)
    return True


def sizes_of(database: Database, path: Path) -> Mapping[str, int]:
    """Return the bytes of the write-ahead log, and of pages that lie unused inside the file."""
    free, page_size = database.read(lambda transaction: (transaction.value(_FREE_PAGES), transaction.value(_PAGE_SIZE)))
    return {"log": _log_of(path), "free": int(free) * int(page_size)}


def vacuum_tables(database: Database, *, full: bool, force: bool) -> Gain:
    """Have PostgreSQL make the space of deleted rows in Fleet's tables usable, or, with `full`, give it back.

    Args:
        database: the database.
        full: write the tables anew, which locks each meanwhile.
        force: do so even while workers are live.

    Raises:
        ConflictError: workers are live, and `full` without `force` is asked for.
    """
    from fleet.storage.tables import metadata

    tables = sorted(metadata.tables)
    if full:
        _check_nobody_waits(database, force)

    def size(transaction: Transaction) -> int:
        return int(transaction.value(_SIZE, tables=tables))

    before = database.read(size)
    database.outside(UNTIMED, Statement(f"VACUUM ({'FULL, ' if full else ''}ANALYZE) {', '.join(tables)}"))
    return Gain(before, database.read(size))


def _check_nobody_waits(database: Database, force: bool) -> None:
    live = 0 if force else database.read(live_workers)
    if live:
        raise ConflictError(
            f"{database.shown}: {live} live {'worker' if live == 1 else 'workers'} would wait for a full vacuum, and "
            "could lose their leases: stop them (`fleet-scaler --target-workers 0`, or SIGTERM to fleet-worker) or add "
            "--force"
        )


def _check_space(database: Database, path: Path) -> None:
    """Raise DatabaseError unless there is space for both copies that SQLite makes: a temporary file, and the log."""
    pages, free, page_size = database.read(
        lambda transaction: tuple(int(transaction.value(one)) for one in (_PAGES, _FREE_PAGES, _PAGE_SIZE))
    )
    copy = (pages - free) * page_size
    folder, temporary = path.resolve().parent, _temporary_folder()
    together = folder.stat().st_dev == temporary.stat().st_dev
    for place, needed in {temporary: copy, folder: 2 * copy if together else copy}.items():
        disk = os.statvfs(place)
        available = disk.f_bavail * disk.f_frsize
        if available < needed:
            raise DatabaseError(
                f"{database.shown}: a full vacuum needs {needed} bytes in {place}, which has {available}: free space, "
                "or set SQLITE_TMPDIR to a folder on another disk"
            )


def _temporary_folder() -> Path:
    """Return where SQLite puts temporary files."""
    named = (os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR"))
    for place in (*named, "/var/tmp", "/usr/tmp", "/tmp"):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path()


def _size_of(path: Path) -> int:
    return path.stat().st_size + _log_of(path)


def _log_of(path: Path) -> int:
    # SQLite keeps the log beside the file that a link names.
    path = path.resolve()
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0
