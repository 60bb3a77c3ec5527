"""One database: its connections, and the two ways to use them: a write transaction, a read transaction.

What differs between SQLite and PostgreSQL stands in `sqlite.py` and `server/postgresql.py`, behind `Dialect`.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fleet.clock import Clock, SystemClock
from fleet.errors import DatabaseBusy, DatabaseError, FleetError, UsageError
from fleet.storage.connections import Source
from fleet.storage.flight import Flight
from fleet.storage.joining import check_commits, check_kind, refusal
from fleet.storage.server.ears import Ears
from fleet.storage.sql import Runner, Statement
from fleet.storage.wire import Borrowed, Wire, Wires

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from fleet.storage.server.pipeline import Answer, Pipeline, Step

T = TypeVar("T")
C = TypeVar("C", "Connection", Borrowed, Wire)

BUSY_WAIT = 10.0
"""Seconds for which a transaction waits for the write lock before DatabaseBusy is raised."""


_TAKE_WRITE_LOCK = Statement("UPDATE fleet_meta SET value = value WHERE false", "SELECT 1 FROM fleet_meta LIMIT 0")
_UUID = Statement("SELECT value FROM fleet_meta WHERE name = 'database_uuid'")


class Dialect(Protocol):
    """What a kind of database does in its own way."""

    shown: str

    def engine(self) -> Engine:
        """Return the engine."""

    def writing(self, on_wait: Callable[[], None], hurries: bool = False) -> Any:
        """Return a context manager: this process's turn to write; where it hurries, others let it past."""

    def begin_write(self, connection: Connection | Wire, durable: bool) -> None:
        """Open a transaction that may write; one of SQLAlchemy's holds a caller's statements, or a migration's."""

    def press(self, connection: Connection | Wire, durable: bool) -> None:
        """Choose how hard the commit is pressed to disk, where that is chosen before the transaction begins."""

    def begin_read(self, connection: Wire) -> None:
        """Open a transaction that reads one snapshot."""

    def now(self, runner: Runner, clock: Clock) -> datetime:
        """Return the database's time."""

    def is_busy(self, error: BaseException) -> bool:
        """Return whether the whole transaction may be run again."""

    def undoes(self, error: BaseException) -> bool:
        """Return whether a transaction that was sent at once is certainly undone, and may be run in another way."""

    def explain(self, error: BaseException) -> DatabaseError | None:
        """Return what to tell people about a driver's error; None when it is not about the database's state."""

    def close(self) -> None:
        """Release what is not the engine's."""

    def listen(self) -> Ears | None:
        """Have connections that are made from now on listen, where a server tells of things; None elsewhere."""

    def send(self, wire: Wire, steps: Sequence[Step]) -> Pipeline | None:
        """Send statements that are one transaction, without waiting; None where that cannot be done."""

    def after_fork(self) -> None:
        """Forget what the child must not share with its parent."""

    shares_memory: bool
    """Whether a forked child would share what it must not."""
    one_writer: bool
    """Whether an open write transaction shuts out every other one."""
    commits_alone: bool
    """Whether a statement outside a transaction is one by itself, on a connection that nobody else uses."""

    @property
    def source(self) -> Source | None:
        """Where connections without SQLAlchemy come from; None where only its engine has any."""


class Transaction(Runner):
    """An open transaction: runs statements, and tells its time once it is asked."""

    __slots__ = ("_clock", "_dialect_ways", "_now")

    def __init__(self, connection: Connection | Wire, ways: Dialect, clock: Clock) -> None:
        super().__init__(connection)
        self._dialect_ways = ways
        self._clock = clock
        self._now: datetime | None = None

    @property
    def now(self) -> datetime:
        """The database's time, read once, after the transaction (and its lock) was had."""
        if self._now is None:
            self._now = self._dialect_ways.now(self, self._clock)
        return self._now

    def renew_now(self) -> None:
        """Read the time anew when next asked: a caller's transaction may be long."""
        self._now = None


class Database:
    """Opens, retries and closes transactions of one database."""

    def __init__(self, ways: Dialect, clock: Clock) -> None:
        self._ways = ways
        self._clock = clock
        self._waiting = SystemClock()
        self._made_engine: Engine | None = None
        self._wires = Wires(ways.source or self._engine)
        self._on_wait: Callable[[], None] = _nothing
        self._on_write: Callable[[bool], None] = _ignore
        self._forked_in_transaction = False
        self._known_uuid: Any = None
        self._flight: Flight | None = None
        self.busy_wait = BUSY_WAIT
        _databases.add(self)

    @property
    def _engine(self) -> Engine:
        """SQLAlchemy's engine, made when first wanted."""
        if self._made_engine is None:
            self._made_engine = self._ways.engine()
        return self._made_engine

    @property
    def shown(self) -> str:
        """What messages call this database."""
        return self._ways.shown

    def on_wait(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` from time to time while a transaction waits."""
        self._on_wait = callback or _nothing

    def on_write(self, callback: Callable[[bool], None] | None) -> None:
        """Call `callback` with True before the write lock is asked for, and with False when it is given back."""
        self._on_write = callback or _ignore

    def write(self, work: Callable[[Transaction], T], *, durable: bool = False, alembic: bool = False) -> T:
        """Run `work` in a transaction that holds the write lock from its first statement, and commit.

        On a busy database the whole transaction is rolled back and run again, never a statement of it: repeating a
        statement inside a transaction with a stale snapshot can never succeed.

        Args:
            work: what to do.
            durable: whether the commit waits for the disk; then other writers let this one past.
            alembic: whether the transaction's connection is to be one of SQLAlchemy's, for a migration.

        Raises:
            DatabaseBusy: the lock was not had within `busy_wait` seconds.
            DatabaseError: the database cannot be used.
        """
        self._check_not_inside_own()
        with self._connected() if alembic else self._wired() as connection:
            return self._in_turn(connection, lambda: self._once(connection, work, durable), durable)

    def _in_turn(self, connection: Connection | Wire, attempt: Callable[[], T], hurries: bool = False) -> T:
        """Do something in this process's turn to write, again and again while the database is busy."""
        deadline = self._waiting.boottime() + self.busy_wait
        while True:
            try:
                with self._ways.writing(self._on_wait, hurries):
                    return attempt()
            except Exception as error:
                self._wait_or_raise(connection, error, deadline)

    @property
    def rows_are_locked(self) -> bool:
        """Whether rows are locked one by one, so that a write that finds nothing to do is in nobody's way."""
        return not self._ways.one_writer

    @property
    def commits_alone(self) -> bool:
        """Whether `add` can be used."""
        return self._ways.commits_alone

    def add(self, sql: str, timed: Callable[[datetime], Iterable[Any]], values: Sequence[Any]) -> int | None:
        """Run one INSERT, in the database's own text, that is a durable transaction by itself.

        Args:
            sql: the INSERT; values are bound by place.
            timed: returns its first values, given the clock's time.
            values: its further values, none of them a time.

        Returns:
            The id of the row that it added; None when it added none.

        Raises:
            DatabaseBusy, DatabaseError: as for `write`.
        """
        self._check_not_inside_own()
        with self._wired() as wire:
            runner = Runner(wire)

            def attempt() -> int | None:
                self._ways.press(wire, True)
                last = runner.inserted_by_place(sql, timed(self._clock.now()), values)
                return last if runner.rowcount else None

            return self._in_turn(wire, attempt, True)

    def _once(self, connection: Connection | Wire, work: Callable[[Transaction], T], durable: bool) -> T:
        # Before, not after: between the lock and the next line of Python another thread may hold the interpreter.
        self._on_write(True)
        try:
            self._ways.begin_write(connection, durable)
            result = work(Transaction(connection, self._ways, self._clock))
            connection.commit()
            return result
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            self._on_write(False)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction that reads one snapshot and takes no write lock."""
        deadline = self._waiting.boottime() + self.busy_wait
        with self._wired() as connection:
            while True:
                try:
                    self._ways.begin_read(connection)
                    found = work(Transaction(connection, self._ways, self._clock))
                    connection.end_reading()
                    return found
                except Exception as error:
                    self._wait_or_raise(connection, error, deadline)
                except BaseException:
                    _roll_back(connection)
                    raise

    def send(self, steps: Sequence[Step]) -> Flight | None:
        """Send statements that are one transaction, without waiting for what the server says of it; see `land`.

        One at a time, by one thread. Whoever wants the connection meanwhile waits for it.

        Returns:
            What is on its way; None where this cannot be done.

        Raises:
            DatabaseError: nothing was sent, and nothing changed.
        """
        wire = self._opened(self._wires.take)
        try:
            pipeline = self._ways.send(wire, steps)
        except Exception as error:
            wire.invalidate()
            self._wires.give_back(wire)
            raise self._told(error) from error
        if pipeline is None:
            self._wires.give_back(wire)
            return None
        self._flight = Flight(pipeline, wire, self._wires)
        return self._flight

    def land(self, flight: Flight) -> list[Answer]:
        """Wait for what was sent; return the answer to each statement.

        Raises:
            DatabaseError: the server cannot be used; whether the transaction was committed may be unknown.
            Exception: another error of the driver, one that has an `sqlstate`: nothing was changed.
        """
        try:
            return flight.land()
        except Exception as error:
            told = error if self._ways.undoes(error) else self._told(error)
            if told is error:
                raise
            raise told from error

    def _settle(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.settle()

    def glance(self, work: Callable[[Runner], T]) -> T:
        """Run `work`, which is one statement that reads, without a transaction around it; only on a server.

        Errors are those of `read`.
        """
        deadline = self._waiting.boottime() + self.busy_wait
        with self._wired() as connection:
            while True:
                try:
                    return work(Runner(connection))
                except Exception as error:
                    self._wait_or_raise(connection, error, deadline)

    def at_once(self, statement: Statement, **values: Any) -> int:
        """Run one statement that is its own transaction; return how many rows it touched.

        It is given the clock's time as `now`; errors are those of `write`.
        """
        deadline = self._waiting.boottime() + self.busy_wait
        with self._wired() as connection:
            while True:
                try:
                    connection.begin()
                    runner = Runner(connection)
                    touched = runner.touched(statement, now=self._clock.now(), **values)
                    connection.commit()
                    return touched
                except Exception as error:
                    self._wait_or_raise(connection, error, deadline)

    def outside(self, *statements: Statement) -> list[tuple[Any, ...]]:
        """Run statements that a database refuses inside a transaction, on one connection; return the last one's rows.

        Errors are those of `write`.
        """
        with self._unbegun() as connection:
            return self._in_turn(
                connection, lambda: [Runner(connection).rows(statement) for statement in statements][-1]
            )

    def _unbegun(self) -> Connection | Borrowed:
        """Return a connection on which every statement commits by itself."""
        if self._ways.one_writer:
            return self._wired()
        return self._connected().execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a durable write transaction for a block of the caller's code; commit at its end."""
        self._check_not_inside_own()
        deadline = self._waiting.boottime() + self.busy_wait
        with self._connected() as connection, self._ways.writing(self._on_wait, True):
            while True:
                try:
                    self._ways.begin_write(connection, True)
                    break
                except Exception as error:
                    self._wait_or_raise(connection, error, deadline)
            _here.open.add(self._own)
            try:
                yield Transaction(connection, self._ways, self._clock)
                self._commit(connection)
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                _here.open.discard(self._own)

    def _check_not_inside_own(self) -> None:
        """Refuse at once what would wait for this very thread's own transaction to end."""
        if _here.open and self._ways.one_writer and self._own in _here.open:
            raise UsageError(
                f"{self.shown}: this thread has a transaction open, which this write would wait for: "
                "give it transaction=, or end the transaction first"
            )

    @property
    def _own(self) -> object:
        """What stands for the database in `_here`: a file may have been opened more than once."""
        return self if self._ways.shares_memory else self.shown

    def within(self, given: Any) -> Transaction:
        """Return a transaction on what the caller has open, and commits or rolls back.

        Args:
            given: a transaction of `transaction()`, a SQLAlchemy connection or a sqlite3 connection, to this database.

        Raises:
            UsageError: it is of another kind, of another database, or would commit each statement by itself.
            DatabaseBusy: it cannot write now.
        """
        if isinstance(given, Transaction):
            if given.connection.closed:
                raise UsageError("transaction=: it has ended: enqueue within its block")
            if given._dialect_ways is self._ways:
                # It may have been open for long.
                given.renew_now()
                return given
            given = given.connection
        check_kind(given)
        try:
            transaction = Transaction(given, self._ways, self._clock)
            # What is read here decides what is written: a caller's transaction may not have the write lock yet.
            transaction.rows(_TAKE_WRITE_LOCK)
            uuid = transaction.value(_UUID)
        except Exception as error:
            raise self._not_joined(error) from error
        if not self._is_own(given) and uuid != self.uuid:
            raise UsageError(f"connection=: it is to another database than {self.shown}")
        check_commits(given)
        return transaction

    def _is_own(self, given: Any) -> bool:
        return self._made_engine is not None and getattr(given, "engine", None) is self._made_engine

    def _not_joined(self, error: Exception) -> Exception:
        if self._ways.is_busy(error):
            return DatabaseBusy(
                f"{self.shown}: the given connection cannot write now: another one does, or has written since this one "
                "began to read: roll back, and run your transaction again (on SQLite, begin it with BEGIN IMMEDIATE)"
            )
        return refusal(original(error), self.shown) or self._told(error)

    @property
    def uuid(self) -> str:
        """Which database it is; read once."""
        if self._known_uuid is None:
            self._known_uuid = self.read(lambda transaction: transaction.value(_UUID))
        return str(self._known_uuid)

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except Exception as error:
            raise self._told(error) from error

    def _connected(self) -> Connection:
        """Return one of SQLAlchemy's connections, for a `with` block; what is kept idle serves it."""
        self._wires.let_go()
        return self._opened(self._engine.connect)

    def _wired(self) -> Borrowed:
        """Give a connection without SQLAlchemy's layer, for a block."""
        return self._opened(self._wires.borrow)

    def _opened(self, connect: Callable[[], C]) -> C:
        if self._forked_in_transaction:
            raise DatabaseError(
                f"{self.shown}: this process was forked while a transaction was open (or the fleet is in memory): "
                "open the fleet anew in the child"
            )
        self._settle()
        try:
            return connect()
        except FleetError:
            raise
        except Exception as error:
            raise self._told(error) from error

    def _wait_or_raise(self, connection: Connection | Wire, error: Exception, deadline: float) -> None:
        _roll_back(connection)
        if not self._ways.is_busy(error):
            told = self._told(error)
            if told is error:
                raise error
            raise told from error
        if self._waiting.boottime() >= deadline:
            raise DatabaseBusy(
                f"{self.shown}: another process has held the write lock for {self.busy_wait:.0f} s; "
                "nothing was changed. Find a shell or program with an open transaction, end it, and try again"
            ) from error
        self._on_wait()
        self._waiting.sleep(random.uniform(0.0, 0.002))

    def listen(self) -> Ears | None:
        """Begin to hear what a server tells, on the one connection of this thread; None where nothing is told."""
        ears = self._ways.listen()
        if ears is not None:
            # Those that are open do not listen.
            self.close_idle()
        return ears

    def is_busy(self, error: BaseException) -> bool:
        """Return whether an error says that others are in the way, and the same transaction may succeed later."""
        return self._ways.is_busy(error)

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, FleetError):
            return error
        return self._ways.explain(original(error)) or error

    def close_idle(self) -> None:
        """Close the connections to a file that nobody uses at the moment."""
        self._settle()
        self._wires.let_go()
        if not self._ways.shares_memory:
            self._dispose()

    def close(self) -> None:
        """Close all connections."""
        self._settle()
        self._wires.let_go()
        self._dispose()
        self._ways.close()

    def _dispose(self) -> None:
        for each in (self._made_engine, self._ways.source):
            if each is not None:
                each.dispose()

    # Forks: a connection that crosses a fork can corrupt a SQLite file, so idle ones are closed before it. One that is
    # in use (a transaction of another thread, or a handler's own) cannot be: the child is told, and uses neither.

    def _before_fork(self) -> None:
        self._settle()
        self._wires.let_go()
        pools: list[Any] = [self._ways.source, self._made_engine and self._made_engine.pool]
        in_use = sum(pool.checkedout() for pool in pools if hasattr(pool, "checkedout"))
        self._child_is_barred = self._ways.shares_memory or in_use > 0
        if not self._child_is_barred:
            self._dispose()

    def _after_fork_in_child(self) -> None:
        self._forked_in_transaction = self._child_is_barred
        if not self._child_is_barred:
            self._ways.after_fork()


def original(error: BaseException) -> BaseException:
    """Return the driver's error inside SQLAlchemy's."""
    inside = getattr(error, "orig", None)
    return inside if isinstance(inside, BaseException) else error


def _roll_back(connection: Connection | Wire) -> None:
    try:
        connection.rollback()
    except Exception:
        # The connection is broken: the pool replaces it, and the first error is what counts.
        connection.invalidate()


def _nothing() -> None:
    """Do nothing while waiting."""


def _ignore(_writes: bool) -> None:
    """Take no note of who writes."""


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class _Here(threading.local):
    """In which databases this thread has a transaction of a caller's open."""

    def __init__(self) -> None:
        self.open: set[object] = set()


_here = _Here()


def _before_fork() -> None:
    for database in list(_databases):
        database._before_fork()


def _after_fork_in_child() -> None:
    _here.open.clear()
    for database in list(_databases):
        database._after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
