"""Rows out of one database and into another, a batch at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fleet.errors import ConflictError, DatabaseError
from fleet.storage.copying.shapes import Shape, Unfit, Values
from fleet.storage.database import Transaction
from fleet.storage.joining import driver_of

BATCH = 1_000
"""Rows in memory at a time."""


def batches(transaction: Transaction, shape: Shape, shown: str) -> Generator[list[Values], None, None]:
    """Yield a table's rows in their one form.

    Args:
        transaction: reads them.
        shape: the table.
        shown: what messages call the database.

    Raises:
        ConflictError: a row holds what its column should not.
    """
    driver = driver_of(transaction.connection)
    # A cursor of the server: the driver's own would fetch the whole table.
    cursor = driver.cursor() if transaction.is_sqlite else driver.cursor(name="fleet_copy")
    try:
        cursor.execute(shape.select(transaction.is_sqlite))
        while rows := cursor.fetchmany(BATCH):
            yield shape.formed(rows)
    except Unfit as error:
        raise ConflictError(f"{shown}: {error}: correct or delete that row, then copy again") from None
    finally:
        cursor.close()


def write(transaction: Transaction, shape: Shape, rows: Iterable[list[Values]], shown: str) -> None:
    """Write a table's rows.

    Args:
        transaction: writes them.
        shape: the table.
        rows: in batches.
        shown: what messages call the database.

    Raises:
        ConflictError: the database refuses a row.
    """
    driver = driver_of(transaction.connection)
    with _refusals(shape, shown):
        if transaction.is_sqlite:
            _insert(driver, shape, rows)
        else:
            _stream(driver, shape, rows)


def _insert(driver: Any, shape: Shape, rows: Iterable[list[Values]]) -> None:
    places = ", ".join("?" * len(shape.fields))
    sql = f"INSERT INTO {shape.table} ({_columns(shape)}) VALUES ({places})"
    for batch in rows:
        driver.executemany(sql, batch)


def _stream(driver: Any, shape: Shape, rows: Iterable[list[Values]]) -> None:
    with driver.cursor() as cursor, cursor.copy(f"COPY {shape.table} ({_columns(shape)}) FROM STDIN") as copy:
        for batch in rows:
            for row in batch:
                _check_for_postgresql(shape, row)
                copy.write_row(row)


def _check_for_postgresql(shape: Shape, row: Values) -> None:
    for field, value in zip(shape.fields, row, strict=True):
        if value.__class__ is str and "\0" in value:
            raise Unfit(f"{shape.name_of(row)}: {field.name} holds a NUL character, which PostgreSQL cannot hold")


def _columns(shape: Shape) -> str:
    return ", ".join(field.name for field in shape.fields)


@contextmanager
def _refusals(shape: Shape, shown: str) -> Iterator[None]:
    """Make one line of what a database says of a row."""
    try:
        yield
    except Unfit as error:
        raise ConflictError(f"{error}: correct or delete that row, then copy again") from None
    except sqlite3.IntegrityError as error:
        raise ConflictError(f"{shown} refuses a row of {shape.table}: {error}") from error
    except Exception as error:
        if isinstance(error, DatabaseError) or not _is_of_values(error):
            raise
        said = " ".join(str(error).split())
        raise ConflictError(f"{shown} refuses a row of {shape.table}: {said[:300]}") from error


def _is_of_values(error: Exception) -> bool:
    """Return whether an error of psycopg's is about values, not the server."""
    return any(kind.__name__ in ("DataError", "IntegrityError") for kind in type(error).__mro__)
