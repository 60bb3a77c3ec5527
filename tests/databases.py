"""Databases for tests: as new for each test, without being made anew for each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, create_engine, insert, make_url, select, text

from fleet.clock import Clock
from fleet.config import DATABASE_VARIABLE, locate
from fleet.storage.interfaces import Storage
from fleet.storage.tables import fleet_meta, maintenance, metadata
from fleet.wiring import open_storage
from tests.postgres import PostgresServer

KINDS = ("sqlite-file", "sqlite-memory", "postgresql")

_Rows = Sequence[Mapping[str, Any]]


def opened(url: str, *, create: bool = False, clock: Clock | None = None) -> Storage:
    """Open the database at `url` (a path or URL, passwords allowed)."""
    return open_storage(locate(None, {DATABASE_VARIABLE: url}), create=create, clock=clock)


@dataclass(frozen=True)
class Slate:
    """A database that serves one test after another, wiped in between: much faster than making one for each."""

    store: Storage
    meta: _Rows

    @classmethod
    def create(cls, url: str, clock: Clock | None = None) -> "Slate":
        """Make the schema at `url`, and remember what a new database holds."""
        store = opened(url, create=True, clock=clock)
        with store.transaction() as transaction:
            return cls(store, [dict(row) for row in transaction.connection.execute(select(fleet_meta)).mappings()])

    def wipe(self) -> None:
        """Make the database as new, but for the ids that it has given out."""
        with self.store.transaction() as transaction:
            _wipe(transaction.connection, self.meta)


def _wipe(connection: Connection, meta: _Rows) -> None:
    for table in reversed(metadata.sorted_tables):
        connection.execute(table.delete())
    connection.execute(insert(fleet_meta), meta)
    connection.execute(insert(maintenance), {"id": 1})


@dataclass(frozen=True)
class PostgresTemplate:
    """A PostgreSQL database with the schema in it, of which copies are made, for tests that change the schema."""

    administration: str
    name: str

    @classmethod
    def create(cls, server: PostgresServer) -> "PostgresTemplate":
        """Create the template on `server`; the server drops it when it stops."""
        url = server.create_database()
        opened(url, create=True).close()
        return cls(server.create_database(), str(make_url(url).database))

    @contextmanager
    def copy(self) -> Iterator[str]:
        """Give the URL of a new copy, which is dropped at the end."""
        name = f"fleet_test_{uuid4().hex}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self.name}" STRATEGY FILE_COPY')
        try:
            yield make_url(self.administration).set(database=name).render_as_string(hide_password=False)
        finally:
            self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        engine = create_engine(self.administration, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()
