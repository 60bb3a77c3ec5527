"""Databases for tests: a new one each, already with Fleet's schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

from fleet.clock import Clock
from fleet.config import DATABASE_VARIABLE, locate
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage
from tests.postgres import PostgresServer

KINDS = ("sqlite-file", "sqlite-memory", "postgresql")


def opened(url: str, *, create: bool = False, clock: Clock | None = None) -> Storage:
    """Open the database at `url` (a path or URL, passwords allowed)."""
    return open_storage(locate(None, {DATABASE_VARIABLE: url}), create=create, clock=clock)


@dataclass(frozen=True)
class PostgresTemplate:
    """A PostgreSQL database with the schema in it, of which copies are made: much faster than migrating each."""

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
