"""Connections to SQLite without SQLAlchemy: whose import takes longer than most commands do.

SQLAlchemy is loaded where somebody wants a connection of it: for a transaction of the caller's own, and for migrations.
A source here has those of an engine's methods that `Wire` needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

KEPT = 2
"""Idle connections that are kept open."""


class Kind(Protocol):
    """Which kind of database it is: one of SQLAlchemy's dialects, or as much of it as is needed."""

    @property
    def name(self) -> str:
        """`sqlite` or `postgresql`."""


@dataclass(frozen=True, slots=True)
class Named:
    """A kind of database by name alone."""

    name: str


SQLITE: Kind = Named("sqlite")


class Source(Protocol):
    """Where connections come from: an engine of SQLAlchemy, or one of the classes here."""

    @property
    def dialect(self) -> Kind:
        """The kind of database."""

    def raw_connection(self) -> Any:
        """Return a connection with the methods of a pool's proxy; errors are the driver's."""

    def dispose(self) -> None:
        """Close idle connections."""


class Lent:
    """A driver's connection that is in use.

    Attributes:
        dbapi_connection: the driver's connection.
        info: what is remembered of it as long as it lives.
    """

    __slots__ = ("_take_back", "dbapi_connection", "info")

    def __init__(self, dbapi_connection: sqlite3.Connection, take_back: Callable[[Lent], None]) -> None:
        self.dbapi_connection = dbapi_connection
        self.info: dict[Any, Any] = {}
        self._take_back = take_back

    def close(self) -> None:
        """Give it back; what is open in it is undone."""
        self._take_back(self)

    def invalidate(self) -> None:
        """Close it for good: it is broken."""
        self.dbapi_connection.close()


class FileConnections:
    """Connections to one SQLite file; a few are kept open.

    Args:
        connect: opens one.
    """

    dialect = SQLITE

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: list[Lent] = []
        self._lent: set[Lent] = set()

    def raw_connection(self) -> Lent:
        """Return a connection that nobody uses."""
        try:
            found = self._idle.pop()
        except IndexError:
            found = Lent(self._connect(), self._take_back)
        self._lent.add(found)
        return found

    def _take_back(self, lent: Lent) -> None:
        self._lent.discard(lent)
        try:
            lent.dbapi_connection.rollback()
        except sqlite3.Error:
            lent.dbapi_connection.close()
            return
        if len(self._idle) < KEPT:
            self._idle.append(lent)
        else:
            lent.dbapi_connection.close()

    def checkedout(self) -> int:
        """Return how many are in use."""
        return len(self._lent)

    def dispose(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().dbapi_connection.close()


class MemoryConnection:
    """The one connection that is a database in memory.

    Args:
        connect: opens it.
    """

    dialect = SQLITE

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._only: Lent | None = None

    def raw_connection(self) -> Lent:
        """Return the connection, whoever else uses it."""
        if self._only is None:
            self._only = Lent(self._connect(), lambda lent: lent.dbapi_connection.rollback())
        return self._only

    def driver(self) -> sqlite3.Connection:
        """Return the driver's connection, for an engine of SQLAlchemy."""
        return self.raw_connection().dbapi_connection

    def checkedout(self) -> int:
        """Nobody has it to himself."""
        return 0

    def dispose(self) -> None:
        """Close it, and so end the database."""
        if self._only is not None:
            self._only.dbapi_connection.close()
            self._only = None
