"""Where the database is, as people say it: `--db-path`, FLEET_DB, `env:NAME`, a SQLite path or any SQLAlchemy URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import UsageError

DATABASE_VARIABLE = "FLEET_DB"
DEFAULT_DATABASE = "fleet.db"
WORKER_VARIABLE = "FLEET_WORKER_DB"
"""What workers that a scaler or an adapter starts are to use, where that is another login."""

_SCHEME = re.compile(r"[a-z][a-z0-9+]*://")
_ALMOST_A_URL = re.compile(r"[\s'\"]*postgres\w*(\+\w+)?\W*//", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a database is.

    Attributes:
        url: a SQLAlchemy URL; may contain a password, so never print it: print `shown`.
        path: the absolute path of a SQLite file, None for memory and servers.
        given_absolute: whether the path was given absolute (only then do worker and scaler create it).
        shown: what messages say.
    """

    url: str
    path: Path | None
    given_absolute: bool
    shown: str


IN_MEMORY = Location("sqlite://", None, True, ":memory:")
"""A SQLite database that nobody else sees, and that is gone with its last connection."""


def locate(given: str | None, environment: Mapping[str, str] | None = None, named: str = "--db-path") -> Location:
    """Return where the database is.

    Args:
        given: the value of `--db-path`, or None.
        environment: defaults to this process's.
        named: what messages call the option or argument.

    Raises:
        UsageError: a URL with a password given as an argument, a named variable that is not set, an unknown kind.
    """
    environment = os.environ if environment is None else environment
    if given is None:
        return _location(environment.get(DATABASE_VARIABLE) or DEFAULT_DATABASE, named)
    if given.startswith("env:"):
        name = given.removeprefix("env:")
        if not environment.get(name):
            raise UsageError(f"{named} {given}: the environment variable {name} is not set")
        return _location(environment[name], named)
    if _SCHEME.match(given) and _password_in(given):
        raise UsageError(
            f"{named}: a password in an argument shows in the process list: put the URL into {DATABASE_VARIABLE} "
            f"(or any variable, and give {named} env:NAME), or use a pgpass file"
        )
    return _location(given, named)


def for_workers(own: Location, environment: Mapping[str, str]) -> tuple[Location, dict[str, str]]:
    """Return which database the workers that this process starts are to use, and the environment that they inherit.

    Without FLEET_WORKER_DB it is this process's own. Where that names another login to it (a URL, or `env:NAME`), no
    variable comes to the workers that has this process's URL in it.

    Args:
        own: the database of this process.
        environment: its variables.

    Raises:
        UsageError: FLEET_WORKER_DB names a variable that is not set, or another kind of database.
    """
    given = environment.get(WORKER_VARIABLE)
    if not given:
        return own, dict(environment)
    if given.startswith("env:"):
        name = given.removeprefix("env:")
        if not environment.get(name):
            raise UsageError(f"{WORKER_VARIABLE}={given}: the environment variable {name} is not set")
        given = environment[name]
    location = _location(given, WORKER_VARIABLE)
    if location.path != own.path:
        raise UsageError(f"{WORKER_VARIABLE} names {location.shown}: give the database of this process ({own.shown})")
    kept = {name: value for name, value in environment.items() if not _is_url_of(value, own, location)}
    kept.pop(WORKER_VARIABLE, None)
    return location, kept


def _is_url_of(value: str, *locations: Location) -> bool:
    try:
        return bool(_SCHEME.match(value)) and _location(value, "") in locations
    except UsageError:
        return False


def working_directory() -> str:
    """Return this process's working directory; raise UsageError when it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working directory no longer exists: change to one that does, then try again") from None


def _password_in(url: str) -> bool:
    authority = url.split("://", 1)[1].split("/", 1)[0]
    query = url.partition("?")[2]
    user_part = authority.rpartition("@")[0]
    return ":" in user_part or "password=" in query


def masked(url: str) -> str:
    """Return the URL with its password replaced by `***`."""
    # To the last @ of the word: a password may have some that should have been written as %40.
    url = re.sub(r"(://[^:/@\s]*):\S*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", url)


def _location(text: str, named: str) -> Location:
    if text in (":memory:", "sqlite://", "sqlite:///:memory:"):
        return IN_MEMORY
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif text.startswith("sqlite+pysqlite:///"):
        text = text.removeprefix("sqlite+pysqlite:///")
    elif text.startswith(("postgresql://", "postgres://")):
        text = "postgresql+psycopg://" + text.split("://", 1)[1]
        return Location(text, None, True, masked(text))
    elif text.startswith("postgresql+psycopg://"):
        return Location(text, None, True, masked(text))
    elif _SCHEME.match(text):
        raise UsageError(f"{named} {masked(text)}: use a SQLite path or a postgresql+psycopg:// URL")
    if _ALMOST_A_URL.match(text):
        raise UsageError(
            f"{named}: what is given for the database begins like a server's URL and is none: "
            "write postgresql+psycopg://USER@HOST/NAME, without blanks and quotes around it"
        )
    path = Path(text).expanduser()
    absolute = path if path.is_absolute() else Path(working_directory()) / path
    absolute = Path(os.path.normpath(absolute))
    return Location(f"sqlite:///{absolute}", absolute, path.is_absolute(), str(absolute))
