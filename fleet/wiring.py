"""The one place that chooses concrete classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.clock import Clock, SystemClock
from fleet.config import Location
from fleet.storage.interfaces import Storage


def prepare_storage(location: Location) -> Callable[[], Storage]:
    """Return what opens an existing database, with all that can be done before: for processes that fork.

    Nothing is connected here. Errors of what is returned are those of `open_storage`.
    """
    from fleet.storage.store import SqlStorage

    return SqlStorage.prepared(location)


def empty_storage(path: Path) -> Storage | None:
    """Return a store in memory with the tables of a SQLite file, and nothing in them; None where that cannot be had.

    The file is closed again before this returns.
    """
    import sqlite3

    from fleet.storage.emptied import emptied

    try:
        return emptied(path)
    except sqlite3.Error:
        return None


def open_storage(
    location: Location,
    *,
    create: bool = False,
    adopt: bool = False,
    read_only: bool = False,
    clock: Clock | None = None,
) -> Storage:
    """Open the database at `location`.

    Args:
        location: where it is.
        create: make a missing SQLite file (0600) with the current schema, or the tables of an empty database.
        adopt: with `create`, make the tables in a database that holds another program's, too.
        read_only: open it so that nothing can be written; works on a read-only copy too.
        clock: the time for SQLite; PostgreSQL uses its server's.

    Raises:
        DatabaseMissing: there is no such file or no Fleet tables in it, and `create` is False.
        SchemaMismatch: its schema is older or newer than this release's.
        DatabaseError: it cannot be opened, read or written; the message says why and what to do.
    """
    from fleet.storage.store import SqlStorage

    return SqlStorage.open(location, create=create, adopt=adopt, read_only=read_only, clock=clock or SystemClock())
