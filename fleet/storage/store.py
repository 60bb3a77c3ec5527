"""The SQL store: one database, its facets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from fleet.clock import Clock, SystemClock
from fleet.config import Location
from fleet.domain.task import MAX_BATCH, SHARED_BATCH
from fleet.errors import DatabaseMissing
from fleet.storage import schema, seal, strangers, upkeep
from fleet.storage.access import is_there
from fleet.storage.adapters import SqlAdapters
from fleet.storage.control_plane import SqlControlPlane
from fleet.storage.database import Database, Transaction
from fleet.storage.health import SqlHealthRecords
from fleet.storage.interfaces import OpenTransaction, Watch
from fleet.storage.orders import SqlWorkerOrders
from fleet.storage.queue.rules import SqlQueueRules
from fleet.storage.queue.work_queue import SqlWorkQueue
from fleet.storage.registration import SqlRegistration
from fleet.storage.schedules import SqlSchedules
from fleet.storage.server.listening import ListeningWatch
from fleet.storage.sqlite import SqliteWays, check_file, check_library, create_file
from fleet.storage.watch import PollingWatch, SqliteWatch


class SqlStorage:
    """One SQLite or PostgreSQL database behind the storage interfaces.

    Args:
        database: an open database whose schema has been checked.
        location: where it is.
        clock: the time for SQLite.
        created: whether opening it has made the tables, in a file or on a server.
    """

    def __init__(self, database: Database, location: Location, clock: Clock, created: bool = False) -> None:
        self.database = database
        self.created = created
        self._location = location
        self._clock = clock
        self.registry = SqlRegistration(database)
        self.queue = SqlWorkQueue(database)
        self.rules = SqlQueueRules(database)
        self.schedules = SqlSchedules(database)
        self.control = SqlControlPlane(database)
        self.health = SqlHealthRecords(database)
        self.orders = SqlWorkerOrders(database)
        self.adapters = SqlAdapters(database)

    @classmethod
    def open(cls, location: Location, *, create: bool, adopt: bool, read_only: bool, clock: Clock) -> SqlStorage:
        """Open a database and check its schema; see `wiring.open_storage`."""
        if location.path is not None:
            _prepare_file(location.path, create, read_only)
        database = cls.database_at(location, read_only=read_only, clock=clock)
        in_memory = location.url == "sqlite://"
        try:
            # A database in memory is always new; any other is made only where that was asked for.
            made = (create or in_memory) and schema.make(database, adopt)
            schema.check(database, writes=not read_only)
        except BaseException:
            database.close()
            raise
        return cls(database, location, clock, made and not in_memory)

    @classmethod
    def prepared(cls, location: Location) -> Callable[[], SqlStorage]:
        """Return what opens the existing database at `location` once; nothing is connected before.

        The file's place was checked by whoever made or opened it first.
        """
        clock = SystemClock()
        database = cls.database_at(location, clock=clock)

        def open() -> SqlStorage:
            if location.path is not None and not is_there(location.path):
                raise _missing(location.path)
            try:
                schema.check(database)
            except BaseException:
                database.close()
                raise
            return cls(database, location, clock)

        return open

    @classmethod
    def database_at(cls, location: Location, *, read_only: bool = False, clock: Clock | None = None) -> Database:
        """Return the database at `location` without looking at its schema."""
        if location.url.startswith("sqlite"):
            return Database(SqliteWays(location.path, read_only), clock or SystemClock())
        from fleet.storage.server.postgresql import PostgresqlWays

        return Database(PostgresqlWays(location.url, read_only), clock or SystemClock())

    @property
    def url(self) -> str:
        """The database's URL without a password."""
        return self._location.shown

    @property
    def uuid(self) -> str:
        """Which database it is."""
        return self.database.uuid

    @property
    def tolerates_slow_writes(self) -> bool:
        """Whether a read of its own row may stand for a beat that waits: one file has one writer at a time."""
        return self._location.url.startswith("sqlite")

    @property
    def largest_batch(self) -> int:
        """How many tasks a claim should bring at most."""
        return SHARED_BATCH if self.tolerates_slow_writes else MAX_BATCH

    def now(self) -> datetime:
        """Return the store's time."""
        return self.database.read(lambda transaction: transaction.now)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a durable write transaction for the block."""
        with self.database.transaction() as transaction:
            yield transaction

    def watch(self, group_id: str | None = None) -> Watch:
        """Begin to watch for commits."""
        if self._location.path is not None:
            return SqliteWatch(self._location.path)
        ears = self.database.listen() if group_id is not None else None
        if ears is not None and group_id is not None:
            return ListeningWatch(self.database, ears, group_id)
        return PollingWatch()

    def trim(self) -> bool:
        """Shorten a write-ahead log that has grown large."""
        return upkeep.trim_log(self.database, self._location.path) if self._location.path is not None else False

    def shrink(self) -> bool:
        """Give some free pages of the file back."""
        return self.database.write(upkeep.return_pages) if self._location.path is not None else False

    def sizes(self) -> Mapping[str, int]:
        """Return bytes by what takes them."""
        return upkeep.sizes_of(self.database, self._location.path) if self._location.path is not None else {}

    def seal(self) -> str | None:
        """Return what a sealed database says."""
        found = self.database.read(seal.found)
        return None if found is None else found.line

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Return the oldest open transactions of others."""
        return strangers.open_transactions(self.database)

    def wait_at_most(self, seconds: float) -> None:
        """Have a transaction wait no longer than this for others' locks."""
        self.database.busy_wait = seconds

    def on_wait(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` from time to time while an operation waits."""
        self.database.on_wait(callback)

    def on_write(self, callback: Callable[[bool], None] | None) -> None:
        """Call `callback` when a write begins and ends."""
        self.database.on_write(callback)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def _prepare_file(path: Path, create: bool, read_only: bool) -> None:
    """Check the file, making a missing one where that is wanted."""
    check_library()
    if not is_there(path):
        if not create or read_only:
            raise _missing(path)
        create_file(path)
    check_file(path, read_only)


def _missing(path: Path) -> DatabaseMissing:
    return DatabaseMissing(f"{path} does not exist: give the database's path, or make it with `fleet init`")
