"""A connection of the pool without SQLAlchemy's layer of execution: for transactions that run Fleet's own statements.

Beginning and ending a transaction through that layer took half of an empty transaction's time (13 of 25 us), and the
memory of each worker that did so.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect, Engine


class Wire:
    """One pooled connection, with those of a SQLAlchemy connection's methods that a transaction needs.

    Args:
        engine: whose pool it comes from.

    Attributes:
        connection: the pool's proxy, as a SQLAlchemy connection has it.
        dialect: the engine's.
        closed: whether it has gone back to the pool.
    """

    __slots__ = ("_driver", "closed", "connection", "dialect")

    def __init__(self, engine: Engine) -> None:
        self.connection = engine.raw_connection()
        self._driver: Any = self.connection.dbapi_connection
        self.dialect: Dialect = engine.dialect
        self.closed = False

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
