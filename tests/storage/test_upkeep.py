"""Space that deleted rows have left, and how it is given back."""

import os
import sqlite3
from pathlib import Path

import pytest

from fleet.config import locate
from fleet.errors import ConflictError, DatabaseError
from fleet.storage import upkeep
from fleet.storage.database import Database
from fleet.storage.interfaces import Storage
from fleet.storage.upkeep import vacuum_file, vacuum_tables
from fleet.wiring import open_storage
from tests.databases import opened
from tests.storage.samples import enqueue_one, execute, join

PAYLOAD = '{"a": "' + "x" * 1_500 + '"}'


def core(store: Storage) -> Database:
    """Return the database behind a store."""
    found: Database = store.database  # type: ignore[attr-defined]
    return found


def fill_and_delete(store: Storage, rows: int) -> None:
    """Leave the space of many deleted tasks behind, and one task."""
    enqueue_one(store, payload_json=PAYLOAD)
    execute(
        store,
        f"""INSERT INTO work_queue (lane_id, task, status, created_at, payload_json)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
        SELECT q.lane_id, 't', 'done', q.created_at, q.payload_json FROM n, work_queue q""",
    )
    execute(store, "DELETE FROM work_queue WHERE status = 'done'")


def free_pages(path: Path) -> int:
    """Return how many pages of a file are free."""
    with sqlite3.connect(path) as connection:
        found = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    connection.close()
    return found


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


def test_free_pages_are_returned_while_others_work(sqlite_file: Storage, sqlite_path: Path) -> None:
    """By default the file shrinks in short transactions, and its log is emptied, though a worker lives (DB09)."""
    join(sqlite_file)
    fill_and_delete(sqlite_file, 2_500)
    assert free_pages(sqlite_path) > 600
    gain = vacuum_file(core(sqlite_file), sqlite_path, full=False, force=False)
    assert (free_pages(sqlite_path), gain.free_bytes, gain.returns_pages) == (0, 0, True)
    assert log_of(sqlite_path).stat().st_size == 0
    assert gain.bytes_after == sqlite_path.stat().st_size < 1_000_000 < gain.bytes_before
    assert len(sqlite_file.queue.list()) == 1


def test_one_step_returns_a_bounded_number_of_pages(sqlite_file: Storage, sqlite_path: Path) -> None:
    """A transaction that returns pages says whether there are more, so that none is long."""
    fill_and_delete(sqlite_file, 100)
    before = free_pages(sqlite_path)
    assert core(sqlite_file).write(lambda transaction: upkeep.return_pages(transaction, 10))
    assert free_pages(sqlite_path) == before - 10
    assert not core(sqlite_file).write(lambda transaction: upkeep.return_pages(transaction, 10_000))


def test_a_reader_of_an_old_snapshot_does_not_hold_it_up(
    sqlite_file: Storage, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody reads an old snapshot the log stays, and the pages are returned all the same."""
    monkeypatch.setattr(upkeep, "_LOG_TRIES", 2)
    fill_and_delete(sqlite_file, 100)
    reader = sqlite3.connect(sqlite_path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM work_queue").fetchone()
    assert vacuum_file(core(sqlite_file), sqlite_path, full=False, force=False).free_bytes == 0
    assert log_of(sqlite_path).stat().st_size > 0
    reader.close()


def test_an_old_file_shrinks_after_one_full_vacuum(tmp_path: Path) -> None:
    """A file made without auto_vacuum says so, and is able to return pages once it was written anew (DB09)."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    store = open_storage(locate(str(path)), create=True, adopt=True)
    fill_and_delete(store, 500)
    gain = vacuum_file(core(store), path, full=False, force=False)
    assert (gain.returns_pages, gain.free_bytes > 500_000) == (False, True)
    gain = vacuum_file(core(store), path, full=True, force=False)
    assert (gain.returns_pages, gain.free_bytes) == (True, 0)
    assert gain.bytes_after < 500_000
    fill_and_delete(store, 500)
    assert vacuum_file(core(store), path, full=False, force=False).free_bytes == 0
    store.close()


def test_a_full_vacuum_refuses_under_live_workers(sqlite_file: Storage, sqlite_path: Path) -> None:
    """Workers could lose their leases while the file is written anew: they are counted, unless told to go on."""
    join(sqlite_file)
    with pytest.raises(ConflictError, match="1 live worker would wait"):
        vacuum_file(core(sqlite_file), sqlite_path, full=True, force=False)
    assert vacuum_file(core(sqlite_file), sqlite_path, full=True, force=True).free_bytes == 0


def test_a_full_vacuum_needs_space_first(
    sqlite_file: Storage, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too little free space a full vacuum is refused before it begins."""
    real = os.statvfs

    def full(place: str | Path) -> os.statvfs_result:
        found = list(real(place))
        found[4] = 1
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", full)
    with pytest.raises(DatabaseError, match=r"a full vacuum needs .* bytes in .*, which has"):
        vacuum_file(core(sqlite_file), sqlite_path, full=True, force=False)


@pytest.mark.parametrize("full", [False, True])
def test_tables_on_postgresql_are_vacuumed(new_postgres_url: str, full: bool) -> None:
    """PostgreSQL reuses the space of deleted rows, or gives it back when the tables are written anew."""
    store = opened(new_postgres_url)
    fill_and_delete(store, 1_000)
    gain = vacuum_tables(core(store), full=full, force=False)
    dead = execute(
        store,
        "SELECT n_dead_tup AS n, vacuum_count AS times FROM pg_stat_user_tables WHERE relname = 'work_queue'",
    )
    assert gain.bytes_after < gain.bytes_before
    assert full or (dead[0]["times"] >= 1)
    assert len(store.queue.list()) == 1
    store.close()


def test_tables_on_postgresql_are_not_locked_under_live_workers(postgresql: Storage) -> None:
    """Writing the tables anew locks each of them: it is refused while a worker lives."""
    join(postgresql)
    with pytest.raises(ConflictError, match="1 live worker would wait"):
        vacuum_tables(core(postgresql), full=True, force=False)
    vacuum_tables(core(postgresql), full=False, force=False)
