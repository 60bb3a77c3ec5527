"""Statements: written once as text, put once into the form of each driver, run on the driver's cursor.

Running them through SQLAlchemy's own execution costs two to three times as much per call on the hot path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleet.storage.connections import Kind
from fleet.storage.joining import dialect_of, driver_of
from fleet.storage.times import moment_of, stamp

Row = dict[str, Any]


class Statement:
    """One SQL statement with `:name` parameters, in one or two dialects.

    Args:
        sqlite: the text for SQLite, and for PostgreSQL too unless that is given.
        postgresql: the text for PostgreSQL where it differs.
    """

    __slots__ = ("_compiled", "_named", "_texts")

    def __init__(self, sqlite: str, postgresql: str | None = None) -> None:
        self._texts = {"sqlite": sqlite, "postgresql": postgresql or sqlite}
        self._compiled: dict[str, tuple[str, tuple[str, ...] | None]] = {}
        self._named: dict[str, str] = {}

    def named(self, dialect: Kind) -> str:
        """Return the driver's text with named parameters: each is bound once, however often the text says it."""
        found = self._named.get(dialect.name)
        if found is None:
            found = self._named[dialect.name] = _FORMS[dialect.name](self._texts[dialect.name])
        return found

    def compiled(self, dialect: Kind) -> tuple[str, tuple[str, ...] | None]:
        """Return the driver's text, and the order of parameters where they are positional."""
        if dialect.name != "sqlite":
            return self.named(dialect), None
        found = self._compiled.get(dialect.name)
        if found is None:
            written = self._texts[dialect.name]
            order = tuple(_PARAMETER.findall(written))
            found = self._compiled[dialect.name] = (_unescaped(_PARAMETER.sub("?", written)), order)
        return found

    def numbered(self) -> tuple[str, tuple[str, ...]]:
        """Return a PostgreSQL server's own text, with parameters `$1`, `$2` and so on, and their names in order."""
        written = self._texts["postgresql"]
        order = tuple(dict.fromkeys(_PARAMETER.findall(written)))
        places = {name: f"${place}" for place, name in enumerate(order, start=1)}
        return _unescaped(_PARAMETER.sub(lambda found: places[found[1]], written)), order


_PARAMETER = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")
"""`:name`, but neither `::type` nor an escaped `\\:`, as in SQLAlchemy's `text()`."""


def _unescaped(written: str) -> str:
    return written.replace("\\:", ":")


def _percent(written: str) -> str:
    """Return a text in psycopg's form: `%(name)s`, any other percent sign doubled."""
    return _unescaped(_PARAMETER.sub(r"%(\1)s", written.replace("%", "%%")))


_FORMS = {"sqlite": _unescaped, "postgresql": _percent}


def _plain_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """Yield the values of rows in the order of `names`, times as text; the same time is written once."""
    stamps: dict[datetime, str] = {}
    for row in rows:
        values = [row[name] for name in names]
        for place, value in enumerate(values):
            if isinstance(value, datetime):
                values[place] = stamps.get(value) or stamps.setdefault(value, stamp(value))
        yield values


class Runner:
    """Runs statements on the driver connection behind a SQLAlchemy connection, or on a caller's sqlite3 connection.

    Attributes:
        connection: what it was given.
        is_sqlite: whether one writer at a time makes row locks needless.
        rowcount: how many rows the last statement touched.
        is_fresh: whether it has run nothing yet.
    """

    __slots__ = ("_dialect", "_driver", "connection", "is_fresh", "is_sqlite", "rowcount")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._dialect = dialect_of(connection)
        self._driver: Any = driver_of(connection)
        self.is_sqlite = self._dialect.name == "sqlite"
        self.rowcount = 0
        self.is_fresh = True

    def rows(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows as tuples. `rowcount` then says how many rows it touched."""
        cursor = self._execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        cursor.close()
        return found

    def records(self, statement: Statement, **values: Any) -> list[Row]:
        """Run a statement; return its rows as dictionaries by column name."""
        cursor = self._execute(statement, values)
        if not cursor.description:
            cursor.close()
            return []
        names = [column[0] for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        cursor.close()
        return found

    def record(self, statement: Statement, **values: Any) -> Row | None:
        """Run a statement; return its first row as a dictionary, None when there is none."""
        found = self.records(statement, **values)
        return found[0] if found else None

    def value(self, statement: Statement, **values: Any) -> Any:
        """Run a statement; return the first column of its first row, None when there is none."""
        found = self.rows(statement, **values)
        return found[0][0] if found else None

    def touched(self, statement: Statement, **values: Any) -> int:
        """Run a statement; return how many rows it touched."""
        self.rows(statement, **values)
        return self.rowcount

    def inserted(self, statement: Statement, **values: Any) -> int:
        """Run an INSERT on SQLite; return the id of the last row that it added. `rowcount` says how many."""
        cursor = self._execute(statement, values)
        last: int = cursor.lastrowid
        cursor.close()
        return last

    def inserted_by_place(self, sql: str, timed: Iterable[Any], values: Sequence[Any]) -> int:
        """Run an INSERT in SQLite's own text, all values bound by place; return the id of the last row that it added.

        Args:
            sql: the text; the statement is kept compiled, so texts must be few.
            timed: the first values, times among them.
            values: the further values, none of them a time.
        """
        cursor = self._driver.cursor()
        cursor.execute(sql, [*(stamp(value) if isinstance(value, datetime) else value for value in timed), *values])
        self.rowcount = cursor.rowcount
        last: int = cursor.lastrowid
        cursor.close()
        return last

    def many(self, statement: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each set of values."""
        sql, order = statement.compiled(self._dialect)
        self.is_fresh = False
        cursor = self._driver.cursor()
        if order is not None:
            cursor.executemany(sql, _plain_rows(order, values))
        else:
            cursor.executemany(sql, values)
        cursor.close()

    def _execute(self, statement: Statement, values: dict[str, Any]) -> Any:
        self.is_fresh = False
        cursor = self._driver.cursor()
        if self.is_sqlite:
            for name, value in values.items():
                if value.__class__ is datetime:
                    values[name] = stamp(value)
        cursor.execute(statement.named(self._dialect), values)
        self.rowcount = cursor.rowcount
        return cursor


def as_time(value: Any) -> datetime | None:
    """Return a column's time, as either database gives it, as an aware UTC datetime."""
    if value is None:
        return None
    return moment_of(value) if isinstance(value, str) else value.astimezone(UTC)


def time_of(value: Any) -> datetime:
    """Return a column's time that cannot be NULL."""
    moment = as_time(value)
    if moment is None:
        raise ValueError("a time that cannot be NULL is NULL")
    return moment
