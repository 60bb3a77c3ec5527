"""`fleet init`, `fleet db upgrade`, `fleet db current`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, place, print_json
from fleet.config import Location
from fleet.errors import DatabaseMissing

if TYPE_CHECKING:
    from fleet.storage.database import Database

db_app = new_app("The database and its schema.")


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.command()(init)
    app.add_typer(db_app, name="db")


def init(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Make the database, or check that it is ready."""
    from fleet.storage.schema import REVISION
    from fleet.wiring import open_storage

    location = place(db_path)
    try:
        open_storage(location).close()
        created = False
    except DatabaseMissing:
        # Adopted: another program's tables may be in it. Of several at once one makes it, and the others find it made.
        open_storage(location, create=True, adopt=True).close()
        created = True
    if as_json:
        print_json({"database": location.shown, "schema": REVISION, "created": created})
    else:
        print(f"{location.shown}: {'ready' if created else 'is there already'} (schema {REVISION})")


@db_app.command()
def upgrade(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Bring the schema to this release's. Stop the workers first."""
    from fleet.storage import schema

    location = place(db_path)
    with _unchecked(location) as database:
        before = schema.current(database)
        if before is None:
            raise DatabaseMissing(f"{location.shown} has no Fleet tables: make them with `fleet init`")
        changed = schema.upgrade(database)
    if as_json:
        print_json({"database": location.shown, "before": before, "schema": schema.REVISION, "changed": changed})
    elif changed:
        print(f"{location.shown}: upgraded from schema {before} to {schema.REVISION}")
    else:
        print(f"{location.shown}: schema {schema.REVISION} already, nothing to do")


@db_app.command()
def current(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Print which schema the database has, and which one this release needs."""
    from fleet.storage import schema

    location = place(db_path)
    with _unchecked(location) as database:
        found = schema.current(database)
    if as_json:
        print_json({"database": location.shown, "schema": found, "release": schema.REVISION})
    elif found == schema.REVISION:
        print(f"{location.shown}: schema {found}, which this release needs")
    else:
        print(f"{location.shown}: schema {found or 'none'}, this release needs {schema.REVISION}")


@contextmanager
def _unchecked(location: Location) -> Iterator[Database]:
    """Open a database whatever its schema is; never make one."""
    from fleet.storage.sqlite import check_file
    from fleet.storage.store import SqlStorage

    if location.path is not None:
        if not location.path.exists():
            raise DatabaseMissing(
                f"{location.shown} does not exist: give the database's path, or make it with `fleet init`"
            )
        check_file(location.path, False)
    database = SqlStorage.database_at(location)
    try:
        yield database
    finally:
        database.close()
