"""A connection of the pool without SQLAlchemy's layer of execution: for transactions that run Fleet's own statements.

Beginning and ending a transaction through that layer took half of an empty transaction's time (13 of 25 us), and the
memory of each worker that did so; taking a connection from the pool and giving it back takes as much again.
"""

from __future__ import annotations

from typing import Any, Self

from sqlalchemy import Dialect, Engine


class Wire:
    """One pooled connection, with those of a SQLAlchemy connection's methods that a transaction needs.

    As a context manager it is kept for the next transaction at the end of its block, unless that failed.

    Args:
        engine: whose pool it comes from.
        kept: where it is kept.

    Attributes:
        connection: the pool's proxy, as a SQLAlchemy connection has it.
        dialect: the engine's.
        closed: whether it has gone back to the pool.
    """

    __slots__ = ("_driver", "_kept", "closed", "connection", "dialect")

    def __init__(self, engine: Engine, kept: list[Wire]) -> None:
        self._kept = kept
        self.connection = engine.raw_connection()
        self._driver: Any = self.connection.dbapi_connection
        self.dialect: Dialect = engine.dialect
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._kept:
            self._kept.append(self)
        else:
            self.close()

    @property
    def info(self) -> dict[Any, Any]:
        """What is remembered of the connection as long as it lives."""
        return self.connection.info

    def exec_driver_sql(self, sql: str) -> None:
        """Run a statement that returns nothing."""
        self._driver.execute(sql).close()

    def begin(self) -> None:
        """Nothing is to be said: the driver begins with the first statement, or is told by one."""

    def commit(self) -> None:
        """Commit."""
        self._driver.commit()

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        self._driver.rollback()

    def invalidate(self) -> None:
        """Say that the connection is broken: the pool makes another."""
        self.connection.invalidate()

    def close(self) -> None:
        """Give the connection back to the pool."""
        self.closed = True
        self.connection.close()


class Wires:
    """The wires of one engine: one is kept between transactions, others come from the pool and go back.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: list[Wire] = []

    def take(self) -> Wire:
        """Return a wire that nobody uses; errors are the driver's."""
        try:
            return self._kept.pop()
        except IndexError:
            return Wire(self._engine, self._kept)

    def give_back(self) -> None:
        """Give what is kept back to the pool."""
        while self._kept:
            self._kept.pop().close()
