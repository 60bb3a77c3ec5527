"""Tasks in the caller's own transaction, on the caller's own connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from fleet import DatabaseBusy, Fleet, UsageError
from tests.databases import opened


@pytest.fixture
def path(app: Fleet, tmp_path: Path) -> Path:
    """The file of a database that exists."""
    app.storage()
    return tmp_path / "fleet.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A sqlite3 connection of the caller's, with a table of its own."""
    connection = sqlite3.connect(path, timeout=0.1)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    yield connection
    connection.close()


def totals(app: Fleet) -> dict[str, int]:
    """Return how many tasks are in each status."""
    return dict(app.storage().queue.totals())


def test_sqlite3_connection_commits_task_and_rows_together(app: Fleet, connection: sqlite3.Connection) -> None:
    """On a sqlite3 connection a task exists with the caller's rows, and not without them."""
    connection.execute("INSERT INTO orders VALUES (1)")
    handle = app.enqueue("x", {"large": "y" * 3000}, connection=connection, idempotency_key="k", requires="gpu")
    assert totals(app) == {}
    connection.commit()
    assert (handle.status(), totals(app)) == ("pending", {"pending": 1})
    app.enqueue("x", connection=connection)
    connection.rollback()
    assert totals(app) == {"pending": 1}
    with connection:
        app.enqueue("x", connection=connection)
    assert totals(app) == {"pending": 2}


def test_declared_task_and_batch_on_a_connection(app: Fleet, connection: sqlite3.Connection) -> None:
    """Declared tasks and tasks of a batch go on the caller's connection, too."""

    @app.task()
    def ship(order: int) -> None: ...

    with app.batch("orders") as batch:
        ship.enqueue(1, connection=connection)
        ship.enqueue_many([{"order": 2}], connection=connection)
        ship.using(batch_id=batch.id).enqueue(3, connection=connection)
        connection.commit()
    assert totals(app) == {"pending": 3}
    assert batch.counts() == {"pending": 1}


@pytest.mark.parametrize("factory", [sqlite3.Row, lambda cursor, row: {"row": row}])
def test_row_factory_of_the_caller(app: Fleet, connection: sqlite3.Connection, factory: Any) -> None:
    """What the caller makes of rows on its connection does not matter, and stays."""
    connection.row_factory = factory
    app.enqueue_many("x", [{}, {}], connection=connection, dedupe_key="k")
    connection.commit()
    assert totals(app) == {"pending": 1}
    assert connection.row_factory is factory


def test_explicit_transaction_in_autocommit_mode(app: Fleet, path: Path) -> None:
    """In autocommit mode a transaction that was begun is used; without one each row would commit by itself: refused."""
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(UsageError, match="autocommit mode"):
        app.enqueue("x", connection=connection)
    connection.execute("BEGIN IMMEDIATE")
    app.enqueue("x", connection=connection)
    connection.execute("COMMIT")
    connection.close()
    assert totals(app) == {"pending": 1}


def test_sqlalchemy_connection_that_has_not_begun(app: Fleet, path: Path) -> None:
    """A SQLAlchemy connection need not have begun: its commit commits the task; in autocommit mode it is refused."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        app.enqueue("x", connection=connection)
        assert totals(app) == {}
        connection.commit()
    assert totals(app) == {"pending": 1}
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(UsageError, match="autocommit mode"),
    ):
        app.enqueue("x", connection=connection)
    engine.dispose()
    assert totals(app) == {"pending": 1}


def test_connection_to_another_database(app: Fleet, path: Path, tmp_path: Path) -> None:
    """A connection to another fleet's database, to one that is no fleet's, or of a kind unknown here is refused."""
    opened(str(tmp_path / "other.db"), create=True).close()
    for name in ("other.db", "none.db"):
        connection = sqlite3.connect(tmp_path / name)
        with pytest.raises(UsageError, match="it is to another database than"):
            app.enqueue("x", connection=connection)
        connection.close()
    with Fleet(tmp_path / "other.db").transaction() as tx, pytest.raises(UsageError, match="another database"):
        app.enqueue("x", transaction=tx)
    for wrong in (create_engine("sqlite://"), "fleet.db", 5):
        with pytest.raises(UsageError, match=r"connection= of type \w+: give what"):
            app.enqueue("x", connection=wrong)
    assert totals(app) == {}


def test_unusable_connections(app: Fleet, connection: sqlite3.Connection, path: Path) -> None:
    """A closed connection, one that reads text as bytes, and two at once are refused in one line."""
    closed = sqlite3.connect(path)
    closed.close()
    with pytest.raises(UsageError, match="closed"):
        app.enqueue("x", connection=closed)
    engine = create_engine(f"sqlite:///{path}")
    shut = engine.connect()
    shut.close()
    with pytest.raises(UsageError, match="closed"):
        app.enqueue("x", connection=shut)
    with pytest.raises(UsageError, match="not both"):
        app.enqueue("x", connection=connection, transaction=connection)
    connection.text_factory = bytes
    with pytest.raises(UsageError, match="text_factory"):
        app.enqueue("x", connection=connection)
    engine.dispose()


def test_transaction_that_has_ended(app: Fleet) -> None:
    """A transaction whose block is over takes no more tasks: nobody would commit or roll back with them."""
    with app.transaction() as tx:
        app.enqueue("x", transaction=tx)
    with pytest.raises(UsageError, match="it has ended"):
        app.enqueue("x", transaction=tx)
    assert totals(app) == {"pending": 1}


def test_connection_that_cannot_write_now(app: Fleet, connection: sqlite3.Connection, path: Path) -> None:
    """Where another writer stands in the way, or wrote after the caller read, that is said with what to do (LK02)."""
    other = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    other.execute("INSERT INTO orders VALUES (5)")
    with pytest.raises(DatabaseBusy, match="begin it with BEGIN IMMEDIATE"):
        app.enqueue("x", connection=connection)
    connection.rollback()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy, match="cannot write now"):
        app.enqueue("x", connection=connection)
    connection.rollback()
    other.execute("ROLLBACK")
    other.close()
    assert totals(app) == {}


def test_connections_on_postgresql(postgres_url: str) -> None:
    """On PostgreSQL the caller's SQLAlchemy connection is used, one that has not begun begins, a foreign one is not."""
    app = Fleet(postgres_url)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        app.enqueue("x", connection=connection)
        connection.commit()
        connection.execute(text("SELECT 1"))
        app.enqueue("x", connection=connection)
        connection.rollback()
    assert totals(app) == {"pending": 1}
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(UsageError, match="autocommit"),
    ):
        app.enqueue("x", connection=connection)
    with pytest.raises(UsageError, match="another database"):
        app.enqueue("x", connection=sqlite3.connect(":memory:"))
    engine.dispose()
    app.close()
