"""The caller's own connection, on which tasks are enqueued: whether it is fit for that, and the driver's behind it."""

from __future__ import annotations

import sqlite3
from typing import Any

from fleet.errors import UsageError
from fleet.storage.connections import SQLITE, Kind

_KINDS = "give what Fleet.transaction() opened, a SQLAlchemy Connection, or a sqlite3.Connection"


class PlainCursors:
    """A caller's sqlite3 connection whose cursors return tuples, whatever its row factory makes of rows."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor that returns tuples."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor


def driver_of(connection: Any) -> Any:
    """Return the driver's connection behind a SQLAlchemy or sqlite3 connection."""
    if isinstance(connection, sqlite3.Connection):
        return PlainCursors(connection)
    return connection.connection.dbapi_connection


def dialect_of(connection: Any) -> Kind:
    """Return the kind of database that a SQLAlchemy or sqlite3 connection is to."""
    if isinstance(connection, sqlite3.Connection):
        return SQLITE
    found: Kind = connection.dialect
    return found


def check_kind(given: Any) -> None:
    """Raise UsageError unless `given` is a connection on which tasks can be enqueued at all.

    A SQLAlchemy connection that has not begun begins: statements on the driver's cursor do not make it begin, and it
    would not commit what it never began.
    """
    if isinstance(given, sqlite3.Connection):
        if given.text_factory is not str:
            raise UsageError("connection=: its text_factory is not str: give one that reads text as text")
    elif not _is_sqlalchemys(given):
        raise UsageError(f"connection= of type {type(given).__name__}: {_KINDS}")
    elif given.closed:
        raise UsageError("connection=: it is closed")
    elif not given.in_transaction():
        given.begin()


def _is_sqlalchemys(given: Any) -> bool:
    from sqlalchemy import Connection

    return isinstance(given, Connection)


def check_commits(given: Any) -> None:
    """Raise UsageError when what was written on the connection is committed already: each row by itself.

    To be asked after the first write, which makes a connection begin that is going to.
    """
    driver = given if isinstance(given, sqlite3.Connection) else given.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        alone = not driver.in_transaction
    else:
        alone = bool(getattr(driver, "autocommit", False))
    if alone:
        raise UsageError(
            "connection=: it is in autocommit mode, where each row commits by itself: begin a transaction on it first "
            "(sqlite3: execute BEGIN IMMEDIATE)"
        )


def refusal(error: BaseException, shown: str) -> UsageError | None:
    """Return what a driver's error says of a given connection: it is closed, or not of the database `shown`."""
    if isinstance(error, sqlite3.ProgrammingError):
        return UsageError(f"connection=: {error}")
    undefined = getattr(error, "sqlstate", None) == "42P01"
    if undefined or (isinstance(error, sqlite3.OperationalError) and str(error).startswith("no such table")):
        return UsageError(f"connection=: it is to another database than {shown}: that one has no Fleet tables")
    return None
