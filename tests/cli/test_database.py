"""`fleet init`, `fleet db`, and databases that cannot be used."""

from __future__ import annotations

import ctypes
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.storage.interfaces import Storage
from fleet.storage.schema import REVISION
from tests.cli.conftest import Command, Outcome

READERS = [
    ("tasks",),
    ("task", "show", "1"),
    ("task", "wait", "1"),
    ("workers",),
    ("groups",),
    ("handlers",),
    ("status",),
    ("db", "current"),
    ("db", "upgrade"),
]
ALL = [*READERS, ("enqueue", "fleet.noop"), ("init",)]

pytestmark = pytest.mark.sqlite_only("about files; test_postgresql.py is about servers")


def test_init_makes_the_database_once(fleet: Command, folder: Path) -> None:
    """`init` makes the file 0600, says where, and changes nothing the second time (SE02)."""
    first = fleet("init")
    assert (first.code, first.out) == (0, f"{folder}/fleet.db: ready (schema {REVISION})\n")
    assert (folder / "fleet.db").stat().st_mode & 0o777 == 0o600
    assert fleet("init").out == f"{folder}/fleet.db: is there already (schema {REVISION})\n"
    assert fleet("init", "--json").document == {"database": f"{folder}/fleet.db", "schema": REVISION, "created": False}


def test_db_current_and_upgrade_of_a_present_schema(fleet: Command, database: Storage, folder: Path) -> None:
    """`db current` names both versions; `db upgrade` of a present schema does nothing."""
    assert fleet("db", "current", "--json").document == {
        "database": f"{folder}/fleet.db",
        "schema": REVISION,
        "release": REVISION,
    }
    done = fleet("db", "upgrade", "--json")
    assert (done.code, done.document["changed"]) == (0, False)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_readers_never_make_a_database(fleet: Command, folder: Path, command: tuple[str, ...]) -> None:
    """A missing database is refused with its absolute path and exit code 3, and stays missing (CR04)."""
    fleet(*command, "--db-path", "sub.db").refused(3, f"{folder}/sub.db", "does not exist", "fleet init")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_directory_as_database(fleet: Command, folder: Path, command: tuple[str, ...]) -> None:
    """A directory is named as such, with exit code 3."""
    (folder / "d").mkdir()
    fleet(*command, "--db-path", "d").refused(3, f"{folder}/d", "directory")


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_file_that_is_no_database(fleet: Command, folder: Path, command: tuple[str, ...]) -> None:
    """A file that is no database is refused with exit code 3 and left as it is."""
    path = folder / "notes.txt"
    path.write_text("not a database, and long enough to be read as the header of one" * 20)
    before = path.read_bytes()
    fleet(*command, "--db-path", path).refused(3, f"{path}", "not a SQLite database")
    assert path.read_bytes() == before


def test_foreign_database_is_not_taken_over(fleet: Command, folder: Path) -> None:
    """A SQLite file of another program is refused by readers with exit code 3."""
    with sqlite3.connect("other.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    fleet("tasks", "--db-path", "other.db").refused(3, "no Fleet tables")


def as_ordinary_user() -> None:
    """Give up root's right to write what the file's mode forbids, for the program that is executed next."""
    bounding_set_drop, dac_override, dac_read_search = 24, 1, 2
    library = ctypes.CDLL(None)
    for capability in (dac_override, dac_read_search):
        library.prctl(bounding_set_drop, capability, 0, 0, 0)


@pytest.mark.parametrize("command", [("enqueue", "fleet.noop"), ("init",), ("db", "upgrade")], ids=" ".join)
def test_read_only_database(fleet: Command, folder: Path, command: tuple[str, ...]) -> None:
    """A database that this user may not write is refused with exit code 3, naming the file (DK02)."""
    fleet("init")
    for file in folder.iterdir():
        file.chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-m", "fleet", *command],
        preexec_fn=as_ordinary_user,
        capture_output=True,
        text=True,
        check=False,
    )
    Outcome(done.returncode, done.stdout, done.stderr).refused(3, f"{folder}/fleet.db", "read-only")


def test_readers_read_a_read_only_database_in_a_read_only_directory(fleet: Command, folder: Path) -> None:
    """A copy that nobody may write is still read (DK04)."""
    fleet("enqueue", "fleet.noop")
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "tasks", "--json"],
        preexec_fn=as_ordinary_user,
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"task": "fleet.noop"' in done.stdout


def test_relative_path_is_told_absolute(fleet: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another directory a relative path is refused by its absolute name instead of a new empty database (CR04)."""
    fleet("init")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    fleet("status", "--db-path", "fleet.db").refused(3, f"{folder}/elsewhere/fleet.db")
    assert list((folder / "elsewhere").iterdir()) == []


def test_environment_names_the_database(fleet: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLEET_DB and `env:NAME` name the database; a variable that is not set is one line."""
    monkeypatch.setenv("FLEET_DB", str(folder / "here.db"))
    assert fleet("init").code == 0
    monkeypatch.setenv("OTHER", str(folder / "here.db"))
    assert fleet("tasks", "--db-path", "env:OTHER").code == 0
    fleet("tasks", "--db-path", "env:NOWHERE").refused(2, "NOWHERE is not set")


def test_password_in_an_argument_is_refused_and_not_shown(fleet: Command) -> None:
    """A URL with a password is refused as an argument, without repeating the password (SE03)."""
    done = fleet("tasks", "--db-path", "postgresql://me:sesame@localhost/x")
    done.refused(2, "FLEET_DB")
    assert "sesame" not in done.err


def test_unreachable_server_is_one_line(fleet: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be reached is one line with exit code 3, the password masked (SE03)."""
    monkeypatch.setenv("FLEET_DB", "postgresql://me:sesame@127.0.0.1:1/x")
    done = fleet("tasks")
    done.refused(3, "127.0.0.1:1")
    assert "sesame" not in done.err


def test_unknown_kind_of_database(fleet: Command) -> None:
    """A URL of another database is refused with what can be used."""
    fleet("tasks", "--db-path", "mysql://localhost/x").refused(2, "SQLite path or a postgresql")


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_database_in_memory_makes_no_sense_for_a_command(fleet: Command, command: tuple[str, ...]) -> None:
    """A database in memory would end with the command: refused as wrong usage."""
    fleet(*command, "--db-path", ":memory:").refused(2, "give a file's path")
