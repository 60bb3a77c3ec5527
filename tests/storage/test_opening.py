"""Opening a database in forked processes, with what was made ready before the fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.config import locate
from fleet.errors import DatabaseMissing
from fleet.storage.database import Database
from fleet.storage.opening import Opening
from tests.databases import opened
from tests.storage.samples import enqueue_one


def in_child(work: Callable[[], bool]) -> bool:
    """Return what `work` returns in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def open_files(path: Path) -> list[str]:
    """Return the files of a database that this process has open."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            continue
    return [name for name in found if name.startswith(str(path))]


def test_nothing_is_connected_to_before_it_is_opened(sqlite_path: Path) -> None:
    """What is made ready touches no file of the database: no connection crosses a fork."""
    before = {entry.name: entry.stat().st_mtime_ns for entry in sqlite_path.parent.iterdir()}
    Opening(locate(str(sqlite_path))).make_ready()
    assert open_files(sqlite_path) == []
    assert {entry.name: entry.stat().st_mtime_ns for entry in sqlite_path.parent.iterdir()} == before


def test_a_missing_database_is_missed_when_it_is_opened(tmp_path: Path) -> None:
    """To make ready what is not there yet is no error, and makes nothing; to open it is one."""
    opening = Opening(locate(str(tmp_path / "none.db")))
    opening.make_ready()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DatabaseMissing):
        opening.open(False)


def test_each_process_opens_its_own(sqlite_path: Path) -> None:
    """Children use what their parent made ready, each with connections of its own, and see each other's commits; what
    one of them opens a second time is another engine."""
    opening = Opening(locate(str(sqlite_path)))
    opening.make_ready()

    def write() -> bool:
        store, other = opening.open(False), opening.open(False)
        enqueue_one(store)
        return store.database is not other.database and other.queue.get(1) is not None and store.created is False

    assert in_child(write)
    assert in_child(lambda: opening.open(False).queue.get(1) is not None)
    store = opened(str(sqlite_path))
    assert store.queue.get(1) is not None
    store.close()


def test_the_process_that_made_it_ready_may_open_it_too(sqlite_path: Path) -> None:
    """Where nobody forks after all, and where nothing was made ready, opening works as ever."""
    opening = Opening(locate(str(sqlite_path)))
    first = opening.open(False)
    opening.make_ready()
    second = opening.open(False)
    enqueue_one(first)
    assert second.queue.get(1) is not None
    first.close()
    second.close()


def test_rehearsals_lead_nowhere(sqlite_path: Path) -> None:
    """After a rehearsal the same engine leads to the file."""
    store = opened(str(sqlite_path))
    enqueue_one(store)
    database: Database = Opening(locate(str(sqlite_path))).open(False).database
    database.rehearse(3)
    assert database.read(lambda transaction: transaction.connection.exec_driver_sql("SELECT id FROM work_queue").all())
    database.close()
    store.close()
