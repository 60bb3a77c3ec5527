"""What all command lines share: errors as one line, options, opening the database, printing.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the database cannot be used, 4 timed out waiting.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.main import get_command

from fleet.cli.output import (
    INTERRUPTED,
    fail,
    finished,
    guarded,
    note,
    one_line,
    print_json,
    print_table,
    speak_utf8,
    stored_text,
    warn,
)
from fleet.config import DATABASE_VARIABLE, DEFAULT_DATABASE, Location, locate
from fleet.domain.durations import parse_duration, parse_time
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.storage.interfaces import Storage

# Typer carried Click as a dependency before it carried a copy of its own: in both, these are the bases of BadParameter.
_CommandLineError: type[Any] = typer.BadParameter.__mro__[2]


def new_app(help: str) -> typer.Typer:
    """Return a Typer app whose errors and help are plain text; `help` is its description."""
    return typer.Typer(help=help, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


def run_command(app: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit the process.

    A FleetError becomes `error: MESSAGE` on stderr and its own exit code, a usage error one line and 2; a closed pipe
    ends quietly with 1, ^C with 130. A command exits by `typer.Exit` or by returning its exit code.

    Args:
        app: the commands.
        name: the program's name in messages.
        arguments: defaults to those of the process.
    """
    speak_utf8()
    sys.exit(finished(guarded(lambda: _run(app, name, arguments))))


def _run(app: typer.Typer, name: str, arguments: Sequence[str] | None) -> int:
    try:
        outcome = get_command(app).main(args=arguments, prog_name=name, standalone_mode=False)
    except _CommandLineError as error:
        return fail(_usage_message(error, name), error.exit_code)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return outcome if isinstance(outcome, int) else 0


def _usage_message(error: Any, name: str) -> str:
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else name
    return f"{message[:1].lower()}{message[1:]} (see {command} --help)"


# Options

LARGEST_ID = 2**63 - 1


def duration(text: object) -> float:
    """Return the seconds that an option's text says; Typer names the option when it is no duration."""
    try:
        return parse_duration(str(text))
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None


def moment(text: object) -> datetime:
    """Return the time that an option's text says; Typer names the option when it is no time or has no zone."""
    try:
        return text if isinstance(text, datetime) else parse_time(str(text))
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None


DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db-path",
        metavar="PATH|URL",
        help=f"SQLite path, database URL, or env:NAME. Default: ${DATABASE_VARIABLE}, else ./{DEFAULT_DATABASE}.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


# The database


def place(db_path: str | None) -> Location:
    """Return where the database is; raise UsageError when that makes no sense for a command."""
    location = locate(db_path)
    if location.path is None and location.url.startswith("sqlite"):
        raise UsageError("--db-path :memory: ends with the command: give a file's path")
    return location


@contextmanager
def opened(db_path: str | None, *, create: bool = False, read_only: bool = False) -> Iterator[Storage]:
    """Open the database that `--db-path` names, and close it at the end of the block.

    Args:
        db_path: the option's value.
        create: make a missing SQLite file; the process that made it names it on stderr.
        read_only: write nothing, whatever happens.

    Raises:
        UsageError: the option makes no sense.
        DatabaseError: the database cannot be used.
    """
    from fleet.wiring import open_storage

    location = place(db_path)
    storage = open_storage(location, create=create, read_only=read_only)
    try:
        if storage.created:
            note(f"created {location.shown}")
        yield storage
    finally:
        storage.close()


__all__ = [
    "INTERRUPTED",
    "LARGEST_ID",
    "DatabaseOption",
    "JsonOption",
    "duration",
    "fail",
    "moment",
    "new_app",
    "note",
    "one_line",
    "opened",
    "print_json",
    "print_table",
    "run_command",
    "stored_text",
    "warn",
]
