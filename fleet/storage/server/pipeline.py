"""Statements sent to a PostgreSQL server without waiting for what it says of them.

They go in libpq's pipeline mode, behind one Sync: the server runs them as one transaction, and commits it by itself, so
that none stays open while the sender does something else. It says nothing before; what it says fits into the buffers of
the connection as long as the statements see to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.storage.server.session import OPENINGS, Openings
from fleet.storage.sql import Statement
from fleet.storage.wire import PREPARED, Wire, is_ready

Step = tuple[Statement, Mapping[str, str | None]]
"""A statement and its values as texts, by name."""

_NUMBER = "prepared so far"
UNKNOWN_STATEMENT = "26000"


class Answer:
    """What the server said of one statement: its bytes are read when the rows are wanted.

    Args:
        driver: the connection, still open, that knows how values are read.
        result: the driver's result.
    """

    __slots__ = ("_reading", "_rows")

    def __init__(self, driver: Any, result: Any) -> None:
        from psycopg.adapt import Transformer

        self._reading = Transformer(driver)
        self._reading.set_pgresult(result)
        self._rows = int(result.ntuples)

    def __len__(self) -> int:
        """How many rows there are."""
        return self._rows

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows."""
        return self._reading.load_rows(0, self._rows, tuple)


class Pipeline:
    """Sends on one connection, and receives; nobody else uses the connection in between.

    Args:
        wire: the connection, on which no transaction is open.

    Attributes:
        is_open: whether something was sent whose reply is still to be read: nothing else may be said meanwhile.
    """

    def __init__(self, wire: Wire) -> None:
        self.is_open = False
        self._wire = wire
        self._driver: Any = wire.driver
        self._session: Any = self._driver.pgconn

    @staticmethod
    def serves(wire: Wire) -> bool:
        """Return whether a connection can be used so: what is prepared lives in a session, which a pool may swap."""
        from psycopg import Pipeline as Supported

        openings: Openings = wire.info[OPENINGS]
        return not openings.pooled and Supported.is_supported()

    def send(self, steps: Sequence[Step]) -> None:
        """Send statements that are one transaction; errors are the driver's, and then nothing was changed."""
        prepared = [self._prepared(statement) for statement, _ in steps]
        session = self._session
        self.is_open = True
        session.enter_pipeline_mode()
        for (name, order), (_, values) in zip(prepared, steps, strict=True):
            session.send_query_prepared(name, [_bytes(values[each]) for each in order])
        session.pipeline_sync()
        while session.flush():
            is_ready(session.socket, to_write=True)
            session.consume_input()

    def _prepared(self, statement: Statement) -> tuple[bytes, tuple[str, ...]]:
        known: dict[Statement, tuple[bytes, tuple[str, ...]]] = self._wire.info.setdefault(PREPARED, {})
        found = known.get(statement)
        if found is None:
            text, order = statement.numbered()
            number = self._wire.info[_NUMBER] = self._wire.info.get(_NUMBER, 0) + 1
            name = b"fleet_%d" % number
            _check(self._session.prepare(name, text.encode()))
            found = known[statement] = (name, order)
        return found

    def receive(self) -> list[Answer]:
        """Wait for what the server says; return its answer to each statement.

        Raises:
            psycopg.Error: nothing was changed, or, where the connection broke, nobody knows.
        """
        from psycopg.pq import ExecStatus

        found, failed = [], None
        while (result := self._next()).status != ExecStatus.PIPELINE_SYNC:
            if result.status == ExecStatus.TUPLES_OK:
                found.append(Answer(self._driver, result))
            elif result.status == ExecStatus.FATAL_ERROR and failed is None:
                failed = result
        self._session.exit_pipeline_mode()
        self.is_open = False
        if failed is not None:
            try:
                _check(failed)
            except Exception as error:
                if getattr(error, "sqlstate", None) == UNKNOWN_STATEMENT:
                    # The driver has thrown away all that was prepared, as it does where it rolls back.
                    self._wire.info.pop(PREPARED, None)
                raise
        return found

    def _next(self) -> Any:
        """Return the next result; None stands between those of two statements."""
        from psycopg import OperationalError

        session = self._session
        while True:
            while session.is_busy():
                is_ready(session.socket)
                session.consume_input()
            result = session.get_result()
            if result is not None:
                return result
            if session.status:
                raise OperationalError("the connection is lost")


def _check(result: Any) -> None:
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    if result.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(result)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
