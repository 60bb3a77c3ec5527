"""Connections to SQLite that are kept open for the next transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fleet.storage.connections import KEPT, FileConnections, MemoryConnection


@pytest.fixture
def opened() -> list[sqlite3.Connection]:
    """Remember what was opened."""
    return []


@pytest.fixture
def source(tmp_path: Path, opened: list[sqlite3.Connection]) -> FileConnections:
    """Give connections to a file."""

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "x.db", isolation_level=None))
        return opened[-1]

    return FileConnections(connect)


def is_closed(connection: sqlite3.Connection) -> bool:
    """Return whether a connection was closed."""
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def test_a_connection_is_used_again(source: FileConnections, opened: list[sqlite3.Connection]) -> None:
    """What was given back is lent to the next, and what is remembered of it stays."""
    first = source.raw_connection()
    first.info["level"] = "FULL"
    first.close()
    again = source.raw_connection()
    assert again.info == {"level": "FULL"}
    assert len(opened) == 1


def test_a_few_are_kept(source: FileConnections, opened: list[sqlite3.Connection]) -> None:
    """Of many that were used at once a few stay open, and closing the source closes those."""
    many = [source.raw_connection() for _ in range(KEPT + 3)]
    assert source.checkedout() == len(many)
    for one in many:
        one.close()
    assert source.checkedout() == 0
    assert sum(not is_closed(connection) for connection in opened) == KEPT
    source.dispose()
    assert all(map(is_closed, opened))


def test_what_is_open_is_undone(source: FileConnections) -> None:
    """A transaction that was left open does not reach the next one's."""
    lent = source.raw_connection()
    lent.dbapi_connection.execute("CREATE TABLE t (x)")
    lent.dbapi_connection.execute("BEGIN IMMEDIATE")
    lent.dbapi_connection.execute("INSERT INTO t VALUES (1)")
    lent.close()
    again = source.raw_connection().dbapi_connection
    assert not again.in_transaction
    assert again.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_broken_one_is_not_kept(source: FileConnections, opened: list[sqlite3.Connection]) -> None:
    """What was found broken is not lent again."""
    lent = source.raw_connection()
    lent.invalidate()
    lent.close()
    assert not is_closed(source.raw_connection().dbapi_connection)
    assert len(opened) == 2


def test_memory_has_one_connection() -> None:
    """A database in memory is one connection, which is lent to everybody until it is closed."""
    source = MemoryConnection(lambda: sqlite3.connect(":memory:", isolation_level=None))
    first = source.raw_connection()
    first.dbapi_connection.execute("CREATE TABLE t (x)")
    first.close()
    assert source.raw_connection().dbapi_connection is source.driver()
    assert source.driver().execute("SELECT count(*) FROM t").fetchone() == (0,)
    before = source.driver()
    source.dispose()
    assert is_closed(before)
