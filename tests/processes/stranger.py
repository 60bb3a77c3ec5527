"""Somebody else's connection to a test's database: plain SQL on whatever it is, with SQLite's words for values.

Question marks stand for parameters; times and JSON come as the texts that SQLite has.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads
from sqlalchemy import make_url

from fleet.storage.times import stamp


def is_url(location: str) -> bool:
    """Return whether a location is a server's, not a file's."""
    return "://" in location


@contextmanager
def connected(location: str, *, read_only: bool = False) -> Iterator[Stranger]:
    """Give a connection for a block, committed at its end."""
    if is_url(location):
        address = make_url(location).set(drivername="postgresql").render_as_string(False)
        with psycopg.connect(address, connect_timeout=30) as connection:
            set_json_loads(lambda data: data if isinstance(data, str) else bytes(data).decode(), connection)
            connection.execute("SET TIME ZONE 'UTC'")
            yield Stranger(connection, is_remote=True)
        return
    file = sqlite3.connect(f"file:{location}?mode={'ro' if read_only else 'rw'}", uri=True, timeout=30)
    try:
        with file:
            yield Stranger(file, is_remote=False)
    finally:
        file.close()


@contextmanager
def write_lock(location: str, patience: float = 30.0) -> Iterator[None]:
    """Let nobody write for a block, as a shell does that has left a transaction open; everybody may read."""
    if is_url(location):
        address = make_url(location).set(drivername="postgresql").render_as_string(False)
        with psycopg.connect(address, connect_timeout=30) as connection:
            _lock_tables(connection, patience)
            yield
            connection.rollback()
        return
    file = sqlite3.connect(location, timeout=patience, isolation_level=None)
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        file.execute("ROLLBACK")
        file.close()


def _lock_tables(connection: Any, patience: float) -> None:
    tables = connection.execute(
        "SELECT string_agg(quote_ident(tablename), ', ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'"
    ).fetchone()[0]
    deadline = time.monotonic() + patience
    while True:
        connection.rollback()
        # Shorter than the time after which a server looks for deadlocks: nobody else is to be their victim.
        connection.execute("SET LOCAL lock_timeout = '200ms'")
        try:
            connection.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > deadline:
                raise
        else:
            return


class Stranger:
    """Runs statements.

    Args:
        connection: the driver's connection.
        is_remote: whether it is a server's.
    """

    def __init__(self, connection: Any, *, is_remote: bool) -> None:
        self.connection = connection
        self._is_remote = is_remote

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return what it finds."""
        if not self._is_remote:
            return list(self.connection.execute(sql, tuple(values)).fetchall())
        text = sql.replace("%", "%%").replace("?", "%s") if values else sql
        cursor = self.connection.execute(text, tuple(values) or None)
        found = cursor.fetchall() if cursor.description else []
        return [tuple(map(_plain, row)) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value.astimezone(UTC))
    return int(value) if isinstance(value, bool) else value
