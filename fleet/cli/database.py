"""`fleet init`, `fleet db upgrade`, `fleet db current`, `fleet db vacuum`, `fleet db copy`, `fleet db reopen`,
`fleet db roles`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, place, print_json
from fleet.config import Location, locate
from fleet.errors import DatabaseMissing, UsageError

if TYPE_CHECKING:
    from fleet.storage.database import Database
    from fleet.storage.upkeep import Gain

ForceOption = Annotated[bool, typer.Option("--force", help="Do it even while workers are live.")]

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
    # Adopted: another program's tables may be in it. Of several at once one makes it, and the others find it made.
    with closing(open_storage(location, create=True, adopt=True)) as storage:
        created = storage.created
    if as_json:
        print_json({"database": location.shown, "schema": REVISION, "created": created})
    else:
        print(f"{location.shown}: {'ready' if created else 'is there already'} (schema {REVISION})")


@db_app.command()
def upgrade(db_path: DatabaseOption = None, force: ForceOption = False, as_json: JsonOption = False) -> None:
    """Bring the schema to this release's. Stop the workers first: it is refused while any is live."""
    from fleet.storage import schema, seal

    location = place(db_path)
    with _unchecked(location) as database:
        before = schema.current(database)
        if before is None:
            raise DatabaseMissing(f"{location.shown} has no Fleet tables: make them with `fleet init`")
        seal.check(database)
        changed = schema.upgrade(database, force=force)
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
    with _unchecked(location, read_only=True) as database:
        found = schema.current(database)
    if as_json:
        print_json({"database": location.shown, "schema": found, "release": schema.REVISION})
    elif found == schema.REVISION:
        print(f"{location.shown}: schema {found}, which this release needs")
    else:
        print(f"{location.shown}: schema {found or 'none'}, this release needs {schema.REVISION}")


@db_app.command()
def vacuum(
    db_path: DatabaseOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Write the whole database anew: needs space, stops writers.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give the space of deleted rows back to the operating system."""
    from fleet.storage import schema, upkeep

    location = place(db_path)
    with _unchecked(location) as database:
        schema.check(database)
        if location.path is not None:
            gain = upkeep.vacuum_file(database, location.path, full=full, force=force)
        else:
            gain = upkeep.vacuum_tables(database, full=full, force=force)
    if as_json:
        print_json({"database": location.shown, "full": full, **asdict(gain)})
    else:
        _print_gain(location, gain)


def _print_gain(location: Location, gain: Gain) -> None:
    print(
        f"{location.shown}: {_megabytes(gain.bytes_before)} before, {_megabytes(gain.bytes_after)} now, "
        f"{_megabytes(gain.free_bytes)} of it free"
    )
    if not gain.returns_pages:
        print("this file was made without auto_vacuum and cannot shrink: run `fleet db vacuum --full` once")


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB"


@db_app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="SQLite path, database URL, or env:NAME.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; missing, or just made with `fleet init`.")],
    as_json: JsonOption = False,
) -> None:
    """Copy the fleet to another database, verify it there, and seal the first. Stop workers and scalers before."""
    from fleet.storage.copying import copy_fleet

    origin, goal = _place_of(source, "FROM"), _place_of(target, "TO")
    if origin.url == goal.url:
        raise UsageError(f"FROM and TO are the same database, {origin.shown}")
    progress = _Progress()
    try:
        with _unchecked(origin) as database:
            copied = copy_fleet(database, goal, progress)
    finally:
        progress.clear()
    if as_json:
        tables = {name: asdict(tally) for name, tally in copied.tables.items()}
        print_json({"from": origin.shown, "to": goal.shown, "rows": copied.rows, "tables": tables})
    else:
        print(
            f"{goal.shown}: has all {copied.rows} rows of {origin.shown}, which is sealed now: start workers, scalers "
            "and programs with the new one"
        )


def _place_of(given: str, named: str) -> Location:
    location = locate(given, named=named)
    if location.path is None and location.url.startswith("sqlite"):
        raise UsageError(f"{named} :memory: ends with the command: give a file's path")
    return location


class _Progress:
    """One line on a terminal that is written over and over; nothing elsewhere."""

    def __init__(self) -> None:
        self._shows = sys.stderr is not None and sys.stderr.isatty()
        self._length = 0

    def __call__(self, doing: str, table: str, rows: int) -> None:
        self._show(f"{doing} {rows} rows of {table}")

    def _show(self, text: str) -> None:
        if self._shows:
            print(f"\r{text.ljust(self._length)}\r", end="", file=sys.stderr, flush=True)
            self._length = len(text)

    def clear(self) -> None:
        """Leave the line empty."""
        if self._length:
            self._show("")


@db_app.command()
def reopen(
    db_path: DatabaseOption = None,
    force: Annotated[bool, typer.Option("--force", help="Even where a copy to it was not verified.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take the seal off a database whose fleet was copied: it can be used again, beside the copy."""
    from fleet.storage import copying

    location = place(db_path)
    with _unchecked(location) as database:
        seal = copying.reopen(database, force=force)
    if as_json:
        print_json({"database": location.shown, "reopened": seal is not None, "other": seal.other if seal else None})
    elif seal is None:
        print(f"{location.shown}: has no seal, nothing to do")
    else:
        print(f"{location.shown}: can be used again; {seal.other} has the same tasks: run them in one of the two only")


@db_app.command()
def roles(
    db_path: DatabaseOption = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make them, instead of printing the SQL.")] = False,
    prefix: Annotated[str, typer.Option("--prefix", help="What the roles' names begin with.")] = "fleet_",
    as_json: JsonOption = False,
) -> None:
    """Roles of a PostgreSQL server for workers, scalers, readers and enqueuers: the SQL that makes them."""
    from fleet.storage import schema
    from fleet.storage.server import roles as rights

    statements = rights.sql(prefix)
    shown = None
    if apply:
        location = place(db_path)
        with _unchecked(location) as database:
            schema.check_exactly(database)
            rights.apply(database, prefix)
        shown = location.shown
    if as_json:
        listed = [
            {"role": f"{prefix}{right.role}", "table": right.table, "rights": list(right.verbs)}
            for right in rights.rights()
        ]
        print_json({"applied": apply, "rights": listed})
    elif shown:
        names = ", ".join(f"{prefix}{role}" for role in rights.Role)
        print(f"{shown}: the roles {names} are there; give them to logins: GRANT {prefix}worker TO some_login")
    else:
        print("".join(f"{statement};\n" for statement in statements), end="")


@contextmanager
def _unchecked(location: Location, *, read_only: bool = False) -> Iterator[Database]:
    """Open a database whatever its schema is; never make one."""
    from fleet.storage.access import is_there
    from fleet.storage.sqlite import check_file
    from fleet.storage.store import SqlStorage

    if location.path is not None:
        if not is_there(location.path):
            raise DatabaseMissing(
                f"{location.shown} does not exist: give the database's path, or make it with `fleet init`"
            )
        check_file(location.path, read_only)
    database = SqlStorage.database_at(location, read_only=read_only)
    try:
        yield database
    finally:
        database.close()
