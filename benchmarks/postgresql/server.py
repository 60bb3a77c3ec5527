"""The server that everybody has: private, with what a production server would not switch off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from sqlalchemy import make_url

from benchmarks.processes import folder
from tests.postgres import PostgresServer, start_server

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
}


@dataclass(frozen=True)
class Server:
    """A running server.

    Args:
        server: what runs.
    """

    server: PostgresServer

    @contextmanager
    def database(self, waits: bool) -> Iterator[str]:
        """Give the URL (of the driver, not of SQLAlchemy) of an empty database of its own.

        Args:
            waits: whether commits wait for the disk where a session does not say otherwise (`synchronous_commit`).
        """
        made = self.server.create_database()
        url = make_url(made)
        name, address = url.database, url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {"on" if waits else "off"}')
        try:
            yield address
        finally:
            self.server.drop_database(made)
            # What one left behind in memory and in the log is no burden of the next.
            with psycopg.connect(self._administration, autocommit=True) as connection:
                connection.execute("CHECKPOINT")

    @property
    def _administration(self) -> str:
        return make_url(self.server.url("postgres")).set(drivername="postgresql").render_as_string(hide_password=False)

    def settings(self) -> dict[str, str]:
        """Return its version and what it was told."""
        return {name: setting(self._administration, name) for name in ("server_version", *SETTINGS)}


@contextmanager
def serving() -> Iterator[Server]:
    """Give a private server; FLEET_TEST_POSTGRES_URL names another one."""
    with folder() as place, start_server(place, SETTINGS) as server:
        yield Server(server)


def value(url: str, statement: str) -> int:
    """Return the number that a statement reads."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return int(row[0]) if row else 0


def setting(url: str, name: str) -> str:
    """Return what a session of this database has set."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    return str(row[0]) if row else ""


def analyse(url: str) -> None:
    """Give the planner its statistics, as autovacuum would before long."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def seconds(url: str, statement: str) -> float:
    """Return the seconds between the two times that a statement reads."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    # Some are stored by milliseconds: a handful of tasks may all have been done within one.
    return max(0.001, (row[1] - row[0]).total_seconds())
