"""PostgreSQL's ways: server clock, snapshots, and what its errors mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import NoSuchModuleError

from fleet.clock import Clock, truncated
from fleet.config import masked
from fleet.errors import DatabaseError, UsageError
from fleet.storage import seal
from fleet.storage.access import forbidden
from fleet.storage.connections import Source
from fleet.storage.database import original
from fleet.storage.server import echo, session, silence
from fleet.storage.server.ears import Ears
from fleet.storage.server.pipeline import UNKNOWN_STATEMENT, Pipeline, Step
from fleet.storage.server.session import OPENINGS, Openings
from fleet.storage.sql import Runner, Statement
from fleet.storage.wire import Wire

_CLOCK = Statement("SELECT clock_timestamp()")
# What it says about a connection that breaks while it is being closed is for nobody: who used it has the error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_UNIQUE_VIOLATION = "23505"
_INSUFFICIENT_PRIVILEGE = "42501"
_RUN_AGAIN = {"40001", "40P01", "55P03"}
"""serialization_failure, deadlock_detected, lock_not_available."""


class PostgresqlWays:
    """How a PostgreSQL database is used.

    Args:
        url: a SQLAlchemy URL for psycopg.
        read_only: refuse every write.
    """

    shares_memory = False
    one_writer = False
    commits_alone = False
    source: Source | None = None

    def __init__(self, url: str, read_only: bool = False) -> None:
        self._url = url
        self._read_only = read_only
        self._ears: Ears | None = None
        self._connect: Callable[[], Any]
        self.shown = masked(url)

    def engine(self) -> Engine:
        """Return the engine: few connections, each in UTC, JSON read as text."""
        try:
            engine = create_engine(
                self._url, pool_size=1, max_overflow=30, connect_args=silence.terms(self._url), use_native_hstore=False
            )
        except (NoSuchModuleError, ModuleNotFoundError):
            raise DatabaseError(f"{self.shown}: PostgreSQL needs psycopg: pip install 'sqlfleet[postgres]'") from None
        except ValueError:
            # What could not be read may be a part of the password.
            raise UsageError(
                f"{self.shown}: the URL cannot be read: its port is a number, an IPv6 address stands in brackets, and "
                "special characters of a password are written as %XX"
            ) from None
        event.listen(engine, "do_connect", self._learn_the_way)
        event.listen(engine, "connect", self._prepare)
        return engine

    def listen(self) -> Ears:
        """Have connections made from now on listen; return what they hear."""
        if self._ears is None:
            self._ears = Ears()
        return self._ears

    def _learn_the_way(self, dialect: Any, _: Any, arguments: Any, options: Any) -> None:
        self._connect = partial(dialect.connect, *arguments, **options)

    def _prepare(self, connection: Any, record: Any) -> None:
        from psycopg.types.json import set_json_loads

        set_json_loads(_text, connection)
        openings = record.info[OPENINGS] = session.prepare(connection)
        if self._ears is None:
            return
        if openings.pooled and not echo.hears(connection, self._connect):
            self._ears.be_deaf()
        else:
            self._ears.attach(connection)
            connection.commit()

    def writing(self, on_wait: Callable[[], None], hurries: bool = False) -> AbstractContextManager[None]:
        """Return nothing to wait for: rows are locked one by one."""
        return nullcontext()

    def begin_write(self, connection: Connection | Wire, durable: bool) -> None:
        """Open a transaction; one that may be repeated need not wait for the disk."""
        if self._read_only:
            raise DatabaseError(f"{self.shown} was opened read-only")
        openings: Openings = connection.info[OPENINGS]
        if isinstance(connection, Wire):
            connection.begin(openings.durable if durable else openings.own)
            return
        # Statements run on the driver's cursor, which SQLAlchemy does not see: without this it would not commit them.
        connection.begin()
        connection.exec_driver_sql(openings.lent)

    def press(self, connection: Connection | Wire, durable: bool) -> None:
        """Nothing is chosen before a transaction begins."""

    def begin_read(self, connection: Wire) -> None:
        """Open a transaction in which every statement sees the same snapshot."""
        connection.begin(connection.info[OPENINGS].read)

    def now(self, runner: Runner, clock: Clock) -> datetime:
        """Return the server's time: hosts need not agree about theirs."""
        connection = runner.connection
        # As it was when the transaction began, if nothing was asked since: it may have waited for others' locks.
        fresh = runner.is_fresh and isinstance(connection, Wire) and connection.began_at is not None
        moment = connection.began_at if fresh else runner.value(_CLOCK)
        return truncated(moment.astimezone(UTC))

    def is_busy(self, error: BaseException) -> bool:
        """Return whether the transaction lost a race and may be run again."""
        cause: Any = original(error)
        if getattr(cause, "sqlstate", None) == _UNIQUE_VIOLATION:
            # A task that returns to the queue met one of its key that came at this moment: run again, it is seen.
            return bool(cause.diag.constraint_name == "uq_work_queue_dedupe")
        return getattr(cause, "sqlstate", None) in _RUN_AGAIN

    def undoes(self, error: BaseException) -> bool:
        """Return whether the server has refused it for others' locks, or does not know a statement any more."""
        return getattr(error, "sqlstate", None) in {*_RUN_AGAIN, UNKNOWN_STATEMENT}

    def explain(self, error: BaseException) -> DatabaseError | None:
        """Return what an error says about the server; None for one about values."""
        import psycopg

        if isinstance(error, psycopg.IntegrityError | psycopg.DataError) or not isinstance(error, psycopg.Error):
            return None
        if error.sqlstate == seal.STATE:
            return seal.refusal(self.shown, error.diag.message_primary or "")
        text = " ".join(str(error).split())
        if error.sqlstate == _INSUFFICIENT_PRIVILEGE:
            return forbidden(self.shown, error.diag.message_primary or text)
        return DatabaseError(f"{self.shown}: {masked(text)[:500]}")

    def close(self) -> None:
        """Nothing is held besides the engine."""

    def send(self, wire: Wire, steps: Sequence[Step]) -> Pipeline | None:
        """Send statements that are one transaction, unless a pool of connections is in between."""
        if self._read_only or not Pipeline.serves(wire):
            return None
        pipeline = Pipeline(wire)
        pipeline.send(steps)
        return pipeline

    def after_fork(self) -> None:
        """Nothing is shared besides the engine."""


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else bytes(data).decode()
