"""What is copied: the columns of every table, how each is read, and the one form in Python that a value has.

A value has the same form whichever database it comes from: a time is its text, JSON is the text that was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Column, Float, Integer, Table

from fleet.storage.seal import NAME as SEAL
from fleet.storage.tables import metadata
from fleet.storage.types import JsonText, UtcTime

Values = tuple[Any, ...]
Form = Callable[[Any], Any]


class Unfit(ValueError):
    """A value that its column should not hold; says what it should be."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its name, how PostgreSQL is asked for it, what its values look like in Python."""

    name: str
    on_postgresql: str
    form: Form


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is copied.

    Attributes:
        table: its name.
        fields: its columns.
        key: places of the primary key's columns, which name a row in messages.
        counter: the column whose ids are given out in turn and never twice; None where there is none.
    """

    table: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]
    counter: str | None

    def select(self, sqlite: bool) -> str:
        """Return what reads all rows, in the database's own text."""
        columns = ", ".join(field.name if sqlite else field.on_postgresql for field in self.fields)
        # The seal is the database's own, not its fleet's.
        return f"SELECT {columns} FROM {self.table}{self._which}"

    @property
    def count(self) -> str:
        """What counts these rows."""
        return f"SELECT count(*) FROM {self.table}{self._which}"

    @property
    def _which(self) -> str:
        return f" WHERE name <> '{SEAL}'" if self.table == "fleet_meta" else ""

    def formed(self, rows: Iterable[Sequence[Any]]) -> list[Values]:
        """Return rows as either database gives them in their one form.

        Raises:
            Unfit: a value is none that its column should hold; the message names row and column.
        """
        forms = [field.form for field in self.fields]
        return [self._formed(row, forms) for row in rows]

    def _formed(self, row: Sequence[Any], forms: Sequence[Form]) -> Values:
        try:
            return tuple([value if value is None else form(value) for form, value in zip(forms, row, strict=True)])
        except (Unfit, UnicodeEncodeError):
            raise Unfit(self._blame(row)) from None

    def _blame(self, row: Sequence[Any]) -> str:
        for field, value in zip(self.fields, row, strict=True):
            try:
                value if value is None else field.form(value)
            except Unfit as error:
                return f"{self.name_of(row)}: {field.name} is {value!r:.60}, which is no {error}"
            except UnicodeEncodeError:
                return f"{self.name_of(row)}: {field.name} is {value!r:.60}, which is no UTF-8"
        return self.name_of(row)

    def name_of(self, row: Sequence[Any]) -> str:
        """Return what messages call a row."""
        return f"{self.table} ({', '.join(f'{self.fields[place].name} {row[place]}' for place in self.key)})"


def shapes() -> list[Shape]:
    """Return every table, those that others refer to first."""
    return [_shape(table) for table in metadata.sorted_tables]


def _shape(table: Table) -> Shape:
    columns = list(table.columns)
    keys = list(table.primary_key)
    counted = bool(table.dialect_options["sqlite"]["autoincrement"])
    return Shape(
        table.name,
        tuple(_field(column) for column in columns),
        tuple(columns.index(column) for column in keys),
        keys[0].name if counted else None,
    )


def _field(column: Column[Any]) -> Field:
    name, kind = column.name, column.type
    if isinstance(kind, UtcTime):
        # An infinite time, which Fleet never writes, has no such text: it is left for the target to refuse.
        text = (
            f"""coalesce(to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), CAST({name} AS text))"""
        )
        return Field(name, text, _text)
    if isinstance(kind, JsonText):
        return Field(name, f"CAST({name} AS text)", _text)
    if isinstance(kind, Boolean):
        return Field(name, name, _truth)
    if isinstance(kind, Float):
        return Field(name, name, _real)
    return Field(name, name, _whole if isinstance(kind, Integer) else _text)


def _text(value: Any) -> str:
    if value.__class__ is not str:
        raise Unfit("text")
    if not value.isascii():
        value.encode()
    return str(value)


def _whole(value: Any) -> int:
    if value.__class__ is not int:
        raise Unfit("whole number")
    return int(value)


def _real(value: Any) -> float:
    if value.__class__ is not float and value.__class__ is not int:
        raise Unfit("number")
    # SQLite has one zero.
    return float(value) + 0.0


def _truth(value: Any) -> bool:
    if value not in (0, 1):
        raise Unfit("truth value")
    return bool(value)
