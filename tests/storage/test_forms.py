"""Statements in the form of each driver."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

import fleet.storage
from fleet.storage.forgetting import Ended
from fleet.storage.sql import Statement

DIALECTS: dict[str, Any] = {"sqlite": pysqlite.dialect(), "postgresql": psycopg.dialect()}


def statements() -> list[Statement]:
    """Return every statement that a module of the storage holds by itself or in a collection."""
    names = [each.name for each in pkgutil.walk_packages(fleet.storage.__path__, "fleet.storage.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    held = [each for value in values for each in _contents(value)]
    ended = [each for each in held if isinstance(each, Ended)]
    found = [*held, *(one.any for one in ended), *(one.delete for one in ended)]
    return [each for each in found if isinstance(each, Statement)]


def _contents(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple):
        return value
    return value.values() if type(value) is dict else [value]


@pytest.mark.parametrize("name", DIALECTS)
def test_statements_are_as_sqlalchemy_would_write_them(name: str) -> None:
    """Every statement of the package has the text, and the order of parameters, that SQLAlchemy's `text()` gives it."""
    dialect = DIALECTS[name]
    all_of_them = statements()
    assert len(all_of_them) > 150
    for statement in all_of_them:
        compiled: Any = text(statement._texts[name]).compile(dialect=dialect)
        order = compiled.positiontup
        assert statement.compiled(dialect) == (compiled.string, tuple(order) if order is not None else None)


@pytest.mark.parametrize(
    ("written", "sqlite", "postgresql"),
    [
        ("SELECT :a, :a, :b_1", "SELECT :a, :a, :b_1", "SELECT %(a)s, %(a)s, %(b_1)s"),
        (r"strftime('%Y\:%M', :now)", "strftime('%Y:%M', :now)", "strftime('%%Y:%%M', %(now)s)"),
        ("CAST(x AS text), y::int", "CAST(x AS text), y::int", "CAST(x AS text), y::int"),
    ],
)
def test_parameters_are_found(written: str, sqlite: str, postgresql: str) -> None:
    """Parameters are found wherever they stand; an escaped colon and a cast are none."""
    statement = Statement(written)
    assert statement.named(DIALECTS["sqlite"]) == sqlite
    assert statement.named(DIALECTS["postgresql"]) == postgresql
