"""`fleet db vacuum`, and who made a database."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.storage.samples import join


@pytest.mark.sqlite_only("a server's disk is larger than its tables")
def test_vacuum_says_what_it_gained(fleet: Command, database: Storage, folder: Path) -> None:
    """`db vacuum` prints the sizes before and after, for people and as JSON."""
    done = fleet("db", "vacuum")
    assert done.code == 0
    assert done.out.startswith(f"{folder}/fleet.db: ")
    assert done.out.count("\n") == 1
    document = fleet("db", "vacuum", "--json").document
    assert document == {
        "database": f"{folder}/fleet.db",
        "full": False,
        "bytes_before": document["bytes_after"],
        "bytes_after": (folder / "fleet.db").stat().st_size,
        "free_bytes": 0,
        "returns_pages": True,
    }


def test_a_full_vacuum_refuses_under_a_live_worker(fleet: Command, database: Storage) -> None:
    """`db vacuum --full` exits 1 with one line while a worker lives; `--force` goes on (DB09)."""
    join(database)
    fleet("db", "vacuum", "--full").refused(1, "1 live worker", "--force")
    assert fleet("db", "vacuum", "--full", "--force", "--json").document["full"] is True


def test_an_old_file_is_told_what_to_do_once(fleet: Command) -> None:
    """For a file that was made without auto_vacuum the one-time command is named (DB09)."""
    with sqlite3.connect("old.db") as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    assert fleet("init", "--db-path", "old.db").code == 0
    assert "run `fleet db vacuum --full` once" in fleet("db", "vacuum", "--db-path", "old.db").out
    assert fleet("db", "vacuum", "--full", "--db-path", "old.db").code == 0
    assert fleet("db", "vacuum", "--db-path", "old.db").out.count("\n") == 1


@pytest.mark.sqlite_only("a server's database is made by `fleet init` alone")
def test_vacuum_makes_no_database(fleet: Command, folder: Path) -> None:
    """A missing database is refused with exit code 3, and stays missing (CR04)."""
    fleet("db", "vacuum").refused(3, f"{folder}/fleet.db", "does not exist")
    assert list(folder.iterdir()) == []


@pytest.mark.sqlite_only("a server's database of a test is made already")
def test_of_many_that_make_a_database_one_says_so(process: Command) -> None:
    """Of several `init` at once one says that it made the database."""
    with ThreadPoolExecutor(4) as together:
        done = list(together.map(lambda _: process("init", "--json"), range(4)))
    assert sorted(one.document["created"] for one in done) == [False, False, False, True]


def test_the_version_is_read_without_writing(fleet: Command, database: Storage, folder: Path) -> None:
    """`db current` makes no file beside the database, not even to wait for its turn to write."""
    database.close()
    for file in folder.glob("fleet.db-*"):
        file.unlink()
    assert fleet("db", "current").code == 0
    assert [file.name for file in folder.glob("fleet.db*") if file.name.endswith("-lock")] == []
