"""Every revision, one step up and one step down, with data in every table, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from fleet.storage import schema
from fleet.storage.database import Database
from fleet.storage.interfaces import Storage
from fleet.storage.tables import metadata
from fleet.storage.views import VIEWS
from tests.storage.filling import fill, insert
from tests.storage.samples import enqueue_one, execute
from tests.storage.test_migrations import core


def revisions() -> list[str]:
    """Return all revisions, the first one first."""
    config = Config()
    config.set_main_option("script_location", str(schema.migrations()))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


REVISIONS = revisions()
Columns = dict[str, list[str]]
Contents = dict[str, list[Any]]


@pytest.fixture
def filled(own_database: Storage) -> Iterator[Storage]:
    """Give a database of the present schema with a row in every table, beside those that describe it."""
    with own_database.transaction() as transaction:
        described = transaction.connection.execute(text("SELECT name, value FROM fleet_meta")).mappings().all()
        fill(transaction.connection)
        for row in described:
            insert(transaction.connection, metadata.tables["fleet_meta"], row)
    return own_database


def columns(store: Storage) -> Columns:
    """Return which columns there are."""
    with store.transaction() as transaction:
        there = inspect(transaction.connection)
        return {
            name: sorted(column["name"] for column in there.get_columns(name))
            for name in there.get_table_names()
            if name in metadata.tables
        }


def shared(one: Columns, other: Columns) -> Columns:
    """Return the columns that both have."""
    return {name: [each for each in found if each in other[name]] for name, found in one.items() if name in other}


def contents(store: Storage, wanted: Columns) -> Contents:
    """Return what these columns hold; of the rows that describe the database, all but which release may read it."""
    return {
        name: sorted(
            (tuple(str(value) for value in row.values()) for row in execute(store, _select(name, found))), key=repr
        )
        for name, found in wanted.items()
    }


def _select(table: str, found: list[str]) -> str:
    which = " WHERE name <> 'oldest_reader'" if table == "fleet_meta" else ""
    return f"SELECT {', '.join(found)} FROM {table}{which}"


def step_down(database: Database, revision: str) -> None:
    """Go back to a revision."""
    schema.downgrade(database, revision)
    assert schema.current(database) == revision


def test_the_newest_revision_is_the_releases(own_database: Storage) -> None:
    """The last migration makes the schema that this release says it needs, in one line of revisions."""
    assert REVISIONS[-1] == schema.REVISION == schema.current(core(own_database))


def test_nothing_is_left_to_migrate(own_database: Storage) -> None:
    """`alembic check` finds no difference between the migrated tables and those of the code."""
    with own_database.transaction() as transaction:
        config = Config()
        config.set_main_option("script_location", str(schema.migrations()))
        config.attributes["connection"] = transaction.connection
        command.check(config)


@pytest.mark.parametrize(("older", "newer"), list(pairwise(REVISIONS)))
def test_a_step_down_and_up_keeps_what_both_schemas_hold(filled: Storage, older: str, newer: str) -> None:
    """From each revision to the one before and back, no value is lost that both have a column for; every view reads,
    and tasks are enqueued afterwards."""
    database = core(filled)
    if newer != schema.REVISION:
        step_down(database, newer)
    at_newer = columns(filled)
    before = contents(filled, at_newer)
    assert all(before[name] for name in before if name != "fleet_meta")
    step_down(database, older)
    kept = shared(columns(filled), at_newer)
    lower = contents(filled, kept)
    assert lower == before_of(before, at_newer, kept)
    for view in VIEWS:
        execute(filled, f"SELECT * FROM {view}")
    assert schema.upgrade(database, newer, force=True)
    assert columns(filled) == at_newer
    assert contents(filled, kept) == lower
    for view in VIEWS:
        execute(filled, f"SELECT * FROM {view}")
    schema.upgrade(database, force=True)
    execute(filled, "DELETE FROM work_payload")
    renumber(filled)
    assert enqueue_one(filled) > 1


def before_of(contents_before: Contents, had: Columns, kept: Columns) -> Contents:
    """Return of what columns held only those that were kept."""
    return {
        name: sorted(
            (tuple(row[had[name].index(column)] for column in found) for row in contents_before[name]), key=repr
        )
        for name, found in kept.items()
    }


def renumber(store: Storage) -> None:
    """Have a server give out ids above those that were inserted with one."""
    with store.transaction() as transaction:
        if transaction.connection.dialect.name == "postgresql":
            transaction.connection.execute(
                text("SELECT setval(CAST(schemaname || '.' || sequencename AS regclass), 100) FROM pg_sequences")
            )


def test_all_the_way_down_and_up(filled: Storage) -> None:
    """From the newest revision to the first and back, step by step, the first schema's values are all there."""
    database = core(filled)
    at_newest = columns(filled)
    before = contents(filled, at_newest)
    for revision in REVISIONS[-2::-1]:
        step_down(database, revision)
    kept = shared(columns(filled), at_newest)
    assert contents(filled, kept) == before_of(before, at_newest, kept)
    for revision in REVISIONS[1:]:
        assert schema.upgrade(database, revision, force=True)
    assert contents(filled, kept) == before_of(before, at_newest, kept)
    assert columns(filled) == at_newest
