"""A connection of the pool without SQLAlchemy's layer of execution: for transactions that run Fleet's own statements.

Beginning and ending a transaction through that layer took half of an empty transaction's time (13 of 25 us), and the
memory of each worker that did so.
"""

from __future__ import annotations

import select
from types import TracebackType
from typing import Any

from fleet.storage.connections import Source
from fleet.storage.server.session import OPENINGS, Openings

PREPARED = "prepared"
"""Where a connection's `info` has what was prepared on it besides the driver's own statements."""


def is_ready(descriptor: int, seconds: float | None = None, *, to_write: bool = False) -> bool:
    """Wait until a socket can be read from, or written to as well; return whether it can.

    Args:
        descriptor: the socket, whatever its number.
        seconds: for how long; None for as long as it takes.
        to_write: whether to write to is enough.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | (select.POLLOUT if to_write else 0))
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class Wire:
    """One pooled connection, with those of a SQLAlchemy connection's methods that a transaction needs.

    Args:
        source: where it comes from.

    Attributes:
        connection: the pool's proxy, as a SQLAlchemy connection has it.
        dialect: the kind of database.
        closed: whether it has gone back to the pool.
        info: what is remembered of the connection as long as it lives.
        is_broken: whether it was found to be of no use any more.
        began_at: what a server said of the time when the transaction began; None where none was asked.
    """

    __slots__ = ("_driver", "_openings", "began_at", "closed", "connection", "dialect", "info", "is_broken")

    def __init__(self, source: Source) -> None:
        self.connection: Any = source.raw_connection()
        self._driver: Any = self.connection.dbapi_connection
        self.dialect = source.dialect
        self.info: dict[Any, Any] = self.connection.info
        self.closed = self.is_broken = False
        self.began_at: Any = None
        self._openings: Openings | None = self.info.get(OPENINGS)
        if self._openings is not None:
            # The driver would begin by itself, and take a turn to the server and back for that alone.
            self._driver.autocommit = True

    @property
    def driver(self) -> Any:
        """The driver's connection."""
        return self._driver

    def exec_driver_sql(self, sql: str) -> None:
        """Run a statement that returns nothing."""
        self._driver.execute(sql).close()

    def begin(self, said: str | None = None) -> None:
        """Begin: a file needs nothing said, the driver begins with the first statement or is told by one.

        Args:
            said: what is said to a server, in one turn, the last of it being the question for the time; None for what
                is said where nothing special is wanted.
        """
        if self._openings is None:
            return
        cursor = self._driver.execute(self._openings.own if said is None else said, prepare=False)
        while cursor.nextset():
            pass
        self.began_at = cursor.fetchone()[0]
        cursor.close()

    def commit(self) -> None:
        """Commit."""
        self._driver.commit()

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        # The driver then throws away what it has prepared, and all else that was.
        self.info.pop(PREPARED, None)
        self._driver.rollback()

    def end_reading(self) -> None:
        """End a transaction that has only read; rolled back, it would cost a server's connection what it prepared."""
        if self._openings is None:
            self._driver.rollback()
        else:
            self._driver.commit()

    def invalidate(self) -> None:
        """Say that the connection is broken: the pool makes another."""
        if not self.is_broken:
            self.is_broken = True
            self.connection.invalidate()

    def has_ended(self) -> bool:
        """Return whether the server has ended the session while nobody used it; asks the socket, not the server."""
        if self._openings is None:
            return False
        session = self._driver.pgconn
        try:
            if is_ready(session.socket, 0):
                # Readable: a notification, or the end.
                session.consume_input()
        except Exception:
            return True
        return bool(session.status)

    def close(self) -> None:
        """Give the connection back to the pool, as the pool's others are."""
        self.closed = True
        if self._openings is not None and not self.is_broken:
            try:
                self._driver.rollback()
                self._driver.autocommit = False
            except Exception:
                self.invalidate()
        self.connection.close()


class Wires:
    """Idle connections at hand: asking the source for one, and giving it back, takes as long as a small transaction.

    Args:
        source: where they come from.
    """

    MOST_IDLE = 2

    def __init__(self, source: Source) -> None:
        self._source = source
        self._idle: list[Wire] = []

    def take(self) -> Wire:
        """Return a connection that nobody else uses."""
        while self._idle:
            wire = self._idle.pop()
            if not wire.has_ended():
                return wire
            # A server that was restarted costs whoever comes next no error.
            wire.invalidate()
            wire.close()
        return Wire(self._source)

    def borrow(self) -> Borrowed:
        """Return such a connection for a block."""
        return Borrowed(self)

    def give_back(self, wire: Wire) -> None:
        """Keep a connection, on which no transaction is open, for whoever comes next."""
        if wire.is_broken or len(self._idle) >= self.MOST_IDLE:
            wire.close()
        else:
            self._idle.append(wire)

    def let_go(self) -> None:
        """Give all idle connections to the pool."""
        while self._idle:
            self._idle.pop().close()


class Borrowed:
    """A connection for the length of a block."""

    __slots__ = ("_wire", "_wires")

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._wire = wires.take()

    def __enter__(self) -> Wire:
        return self._wire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wires.give_back(self._wire)
