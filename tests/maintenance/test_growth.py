"""What keeps a database small: the log is emptied, ended rows go, their pages are given back."""

from __future__ import annotations

import sqlite3
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from fleet.config import locate
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.errors import DatabaseError
from fleet.maintenance import pruning, run_pass
from fleet.maintenance.run import PRUNE_BATCH
from fleet.storage import upkeep
from fleet.storage.interfaces import Holder, Storage
from fleet.wiring import open_storage
from tests.databases import opened
from tests.storage.samples import enqueue_one, execute, nobody

HOLDER = Holder("here:1", ProcessIdentity())
MEGABYTE = 1 << 20


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Keep a snapshot of the database open, as a forgotten shell does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM work_queue").fetchall()
        yield
        reader.execute("ROLLBACK")


def log_of(path: Path) -> Path:
    """Return the database's write-ahead log."""
    return path.with_name(path.name + "-wal")


def write(store: Storage, tasks: int = 1_000) -> None:
    """Add about as many kilobytes to the log as `tasks`."""
    store.queue.enqueue([NewTask("t", '{"x":"%s"}' % ("y" * 900))] * tasks)


def finish_all(store: Storage, days_ago: float) -> None:
    """Let every task have ended so many days ago."""
    execute(
        store,
        "UPDATE work_queue SET status = 'done', finished_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :ago)",
        ago=f"-{days_ago * 86_400:.0f} seconds",
    )


def maintain(store: Storage) -> int:
    """Run a pass that is due at once; return how many rows it pruned."""
    execute(store, "UPDATE maintenance SET last_pass_at = NULL, holder_json = NULL, lease_expires_at = NULL")
    report = run_pass(store, HOLDER, nobody)
    assert report is not None
    assert report.errors == ()
    return report.pruned


def exhaust(steps: Iterator[object]) -> None:
    """Go through all steps."""
    deque(steps, maxlen=0)


def test_the_log_grows_only_as_long_as_somebody_reads(
    sqlite_file: Storage, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an old snapshot is read the log cannot be emptied, and nobody waits; the next pass empties it (DB01)."""
    monkeypatch.setattr(upkeep, "LARGE_LOG", MEGABYTE)
    with reading(sqlite_path):
        write(sqlite_file, 4_000)
        maintain(sqlite_file)
        size = log_of(sqlite_path).stat().st_size
        assert size > 4 * MEGABYTE
        assert sqlite_file.sizes()["log"] == size
        # A reader of the present is no hindrance to writers either.
        enqueue_one(sqlite_file)
    maintain(sqlite_file)
    assert log_of(sqlite_path).stat().st_size < MEGABYTE


def test_a_small_log_is_left_alone(sqlite_file: Storage, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is emptied from its limit on, and not a byte below: SQLite uses it again."""
    write(sqlite_file)
    size = log_of(sqlite_path).stat().st_size
    monkeypatch.setattr(upkeep, "LARGE_LOG", size + 1)
    assert not sqlite_file.trim()
    assert log_of(sqlite_path).stat().st_size == size
    monkeypatch.setattr(upkeep, "LARGE_LOG", size)
    assert sqlite_file.trim()
    assert log_of(sqlite_path).stat().st_size == 0


def test_a_database_without_a_log_has_nothing_to_trim(memory: Storage) -> None:
    """In memory there is neither a log nor a file to shrink."""
    assert (memory.trim(), memory.shrink(), memory.sizes()) == (False, False, {})


def test_retention_is_the_fleet_s_setting(sqlite_file: Storage) -> None:
    """A pass prunes what ended before the fleet's retention, which can be changed, and nothing while it is off."""
    write(sqlite_file, 10)
    finish_all(sqlite_file, 2)
    assert maintain(sqlite_file) == 0
    sqlite_file.rules.set_setting("retention", None)
    finish_all(sqlite_file, 99)
    assert maintain(sqlite_file) == 0
    sqlite_file.rules.set_setting("retention", 86_400.0)
    assert maintain(sqlite_file) == 10


def test_pruned_pages_are_given_back_by_passes(sqlite_file: Storage, sqlite_path: Path) -> None:
    """Passes give back the pages of what they pruned, step by step, and never write the file anew (DB04, DB09)."""
    write(sqlite_file, 6 * PRUNE_BATCH)
    finish_all(sqlite_file, 8)
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = sqlite_path.stat().st_size
        while maintain(sqlite_file):
            pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert sqlite_path.stat().st_size < before / 4
    assert sqlite_file.sizes()["free"] < 100 * 4_096


def test_a_file_without_auto_vacuum_is_pruned_all_the_same(tmp_path: Path) -> None:
    """In a file that cannot return pages, prune ends too, and its free pages are told (DB09)."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    with closing(open_storage(locate(str(path)), create=True, adopt=True)) as store:
        write(store)
        finish_all(store, 1)
        exhaust(pruning.prune(store, 0.0))
        assert "done" not in store.queue.totals()
        assert store.sizes()["free"] > MEGABYTE / 2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "fleet-growth", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_can_be_pruned_with_a_little_space(tiny_disk: Path) -> None:
    """On a full disk prune goes as far as the log has room; with a little space freed it makes room for all (DB03)."""
    path, ballast = tiny_disk / "fleet.db", tiny_disk / "ballast"
    ballast.write_bytes(bytes(2 * MEGABYTE))
    with closing(opened(str(path), create=True)) as store:
        with pytest.raises(DatabaseError, match="the disk is full"):
            _fill(store)
        with suppress(DatabaseError):
            exhaust(pruning.prune(store, 0.0))
        ballast.unlink()
        exhaust(pruning.prune(store, 0.0))
        assert "done" not in store.queue.totals()
        write(store, 200)


def _fill(store: Storage) -> None:
    while True:
        write(store, 200)
        finish_all(store, 1)
