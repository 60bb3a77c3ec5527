"""What a disk does: fills up, belongs to somebody else, cannot be written, is damaged, or changes under the workers."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleet import Fleet
from fleet.config import locate
from fleet.errors import DatabaseError
from fleet.storage import sqlite
from fleet.wiring import open_storage
from tests.faults.commands import NOBODY, plainly_as_nobody, python, python_as_nobody
from tests.processes import procfs
from tests.processes.harness import Site

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user, or mounting, needs root")


@pytest.fixture
def shared_site() -> Iterator[Site]:
    """Give a place for a fleet where an unprivileged user may go, and that belongs to that user."""
    directory = Path(tempfile.mkdtemp(prefix="fleet-faults-"))
    site = Site(directory)
    for path in (directory, *directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o755)
    yield site
    site.close()
    shutil.rmtree(directory)


@pytest.fixture
def small_disk(bare_site: Site) -> Iterator[Site]:
    """Give a fleet whose database is on a file system of 5 MB."""
    mounted = ["mount", "-t", "tmpfs", "-o", "size=5m", "fleet-faults", str(bare_site.home)]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a file system is not permitted here: {done.stderr.strip()}")
    try:
        bare_site.create()
        yield bare_site
    finally:
        bare_site.kill_all()
        subprocess.run(["umount", "--lazy", str(bare_site.home)], check=True)


def fill(directory: Path) -> Path:
    """Write a file until there is no room for another byte, and return it."""
    ballast = directory / "ballast"
    with suppress(OSError), open(ballast, "ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return ballast


@pytest.mark.sqlite_only("the disk is the server's")
@as_root
def test_a_full_disk_is_waited_out(small_disk: Site) -> None:
    """While the disk is full nothing is lost and nothing floods the log; when there is room again what ran is recorded
    once, and the fleet goes on by itself (DK01)."""
    site = small_disk
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 2)
    site.worker("--heartbeat-interval=1", "--lease=3", processes=2)
    site.wait_executing(tasks)
    before = site.workers()
    ballast = fill(site.home)
    site.open_gate("open")
    site.wait_until(lambda: "the disk is full" in site.log_text(), "the full disk is noticed")
    refused = python(site, "-m", "fleet", "enqueue", "note", f"--db-path={site.database}")
    refused.refused(3, "the disk is full")
    expiry = site.ledger.value("SELECT min(strftime('%s', lease_expires_at)) FROM worker_registry")
    now = "SELECT strftime('%s', 'now')"
    site.wait_until(lambda: site.ledger.value(now) > expiry, "the disk is full for longer than a lease")
    assert site.log_text().count("the disk is full") < 60
    ballast.unlink()
    site.wait_finished(tasks)
    site.ledger.check_done_once(tasks)
    more = site.enqueue("note", count=5)
    site.wait_finished(more)
    assert {worker: pid for worker, (_, pid) in site.workers().items()} == {
        worker: pid for worker, (_, pid) in before.items()
    }
    connection = sqlite3.connect(site.database)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@as_root
def test_root_leaves_nothing_that_shuts_the_owner_out(shared_site: Site) -> None:
    """After root has written to a user's database, with all side files new, the user goes on working with it (DK02)."""
    site, database = shared_site, f"--db-path={shared_site.database}"
    assert python_as_nobody(site, "-m", "fleet", "init", database).code == 0
    for side in ("-wal", "-shm", "-lock"):
        Path(f"{site.database}{side}").unlink(missing_ok=True)
    for command in (("status",), ("enqueue", "fleet.noop")):
        done = python(site, "-m", "fleet", *command, database)
        assert done.code in (0, 1), done
        assert not done.err.startswith("error"), done
    assert {path.stat().st_uid for path in site.home.iterdir()} == {NOBODY}
    worker = python_as_nobody(site, "-m", "fleet.cli.worker", "--until-empty", database)
    assert worker.code == 0, worker
    assert site.ledger.value("SELECT count(*) FROM work_queue WHERE status = 'done'") == 1


@as_root
@pytest.mark.parametrize("side", ["-wal", "-shm"])
def test_a_side_file_of_another_owner_is_named(shared_site: Site, side: str) -> None:
    """A worker whose user may not write a side file is refused before anything is opened, with the file, its owner and
    what to do (DK02)."""
    site, database = shared_site, f"--db-path={shared_site.database}"
    assert python_as_nobody(site, "-m", "fleet", "init", database).code == 0
    held = sqlite3.connect(site.database)
    held.execute("SELECT count(*) FROM work_queue").fetchone()
    file = Path(f"{site.database}{side}")
    os.chown(file, 0, 0)
    file.chmod(0o600)
    for module in ("fleet.cli.worker", "fleet.cli.scaler"):
        python_as_nobody(site, "-m", module, database).refused(3, str(file), "belongs to root", "run as that user")
    held.close()


@as_root
def test_a_lock_file_of_another_owner_is_done_without(shared_site: Site) -> None:
    """The side file for taking turns is a courtesy: where it cannot be opened, writers do without it (DK02)."""
    site, database = shared_site, f"--db-path={shared_site.database}"
    assert python_as_nobody(site, "-m", "fleet", "init", database).code == 0
    file = Path(f"{site.database}-lock")
    file.touch()
    os.chown(file, 0, 0)
    file.chmod(0o600)
    done = python_as_nobody(site, "-m", "fleet", "enqueue", "fleet.noop", database)
    assert done.code == 0, done


@as_root
def test_status_of_a_read_only_copy(shared_site: Site) -> None:
    """In a directory and of a file that this user may only read, readers work, and whoever has to write is told whose
    it is (DK04)."""
    site, database = shared_site, f"--db-path={shared_site.database}"
    assert python_as_nobody(site, "-m", "fleet", "init", database).code == 0
    assert python_as_nobody(site, "-m", "fleet", "enqueue", "fleet.noop", database).code == 0
    for path in (site.home, *site.home.iterdir()):
        os.chown(path, 0, 0)
        path.chmod(0o755 if path.is_dir() else 0o644)
    listed = python_as_nobody(site, "-m", "fleet", "tasks", "--json", database)
    assert listed.code == 0, listed
    assert '"fleet.noop"' in listed.out
    assert python_as_nobody(site, "-m", "fleet", "status", database).out
    python_as_nobody(site, "-m", "fleet.cli.worker", database).refused(3, str(site.database), "belongs to root")


COMMANDS = (
    *("init", "db current", "db upgrade", "db vacuum", "tasks", "task show 1", "task cancel 1", "queues", "limit list"),
    *("enqueue fleet.noop", "pause default", "handlers", "workers", "groups", "status", "quarantine list"),
    *("schedule list", "batch list", "config get", "config set age 10m", "prune --older-than 7d"),
)
MODULES = ("fleet.cli.worker --until-empty", "fleet.cli.scaler --target-workers=0", "fleet.cli.scaler --dry-run")


@as_root
def test_a_directory_that_may_not_be_entered(shared_site: Site) -> None:
    """Where this user may not even look for the file, every command says in one line whose the directory is, and exits
    with 3; nobody is told that the file is missing (DK04)."""
    site = shared_site
    assert python(site, "-m", "fleet", "init", f"--db-path={site.database}").code == 0
    os.chown(site.home, 0, 0)
    site.home.chmod(0o700)
    for words in (*(f"fleet {command}" for command in COMMANDS), *MODULES):
        done = plainly_as_nobody(site, "-m", *words.split(), f"--db-path={site.database}")
        done.refused(3, "cannot be reached by this user", f"{site.home} belongs to root")


@as_root
def test_a_file_of_ones_own_that_may_not_be_written(shared_site: Site) -> None:
    """Who has taken the write permission off an own file is told its mode, and not to become who he is (DK04)."""
    site, database = shared_site, f"--db-path={shared_site.database}"
    assert python_as_nobody(site, "-m", "fleet", "init", database).code == 0
    site.database.chmod(0o444)
    assert python_as_nobody(site, "-m", "fleet", "tasks", database).code == 0
    for words in ("fleet enqueue fleet.noop", "fleet pause default", *MODULES[:2]):
        done = python_as_nobody(site, "-m", *words.split(), database)
        done.refused(3, f"{site.database} is this user's own, with mode 0444 (chmod u+w)")


@pytest.mark.sqlite_only("about where a file is")
def test_a_network_file_system_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database on a network file system is refused with a pointer to PostgreSQL, unless that is overridden; the kind
    of file system is read from the kernel's list of mounts (DK03)."""
    assert sqlite._filesystem_of(Path("/proc/self/status")) == "proc"
    monkeypatch.setattr(sqlite, "_filesystem_of", lambda path: "nfs4")
    with pytest.raises(DatabaseError, match=r"network file system \(nfs4\).*use PostgreSQL, or set") as refusal:
        open_storage(locate(str(site.database)))
    assert str(refusal.value).count("\n") == 0
    monkeypatch.setenv(sqlite.OVERRIDE, "1")
    open_storage(locate(str(site.database))).close()


@pytest.mark.sqlite_only("damages a file")
def test_health_reads_the_database(site: Site) -> None:
    """With a damaged page in the middle of the file the status is an error, however well all processes are (DK05)."""
    site.enqueue("note", count=500)
    connection = sqlite3.connect(site.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'work_queue'").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with open(site.database, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))
    python(site, "-m", "fleet", "status", f"--db-path={site.database}").refused(3, "damaged", "restore a backup")


def replace_by_moving(site: Site) -> None:
    """Move the database away and make a new one."""
    site.database.rename(site.home / "old.db")
    site.create()


def replace_by_removing(site: Site) -> None:
    """Remove the database with its side files and make a new one."""
    for suffix in ("", "-wal", "-shm", "-lock"):
        Path(f"{site.database}{suffix}").unlink(missing_ok=True)
    site.create()


def replace_by_restoring(site: Site) -> None:
    """Put a backup of another time in its place, as a restore by `mv` does."""
    other = Site(site.directory / "backup")
    other.create()
    os.replace(other.database, site.database)
    for suffix in ("-wal", "-shm"):
        Path(f"{site.database}{suffix}").unlink(missing_ok=True)


@pytest.mark.sqlite_only("moves a file")
def test_a_database_that_is_moved_keeps_its_last_commits(site: Site) -> None:
    """A new database at the path of one that was moved away while in use shares nothing with it: the new one is sound,
    and the log of the old one is kept, from which its last commits come back (DK06)."""
    user = Fleet(site.database)
    old = user.enqueue("note").id
    site.database.rename(site.home / "old.db")
    site.create()
    (new,) = site.enqueue("fleet.noop")
    user.enqueue("note")
    user.close()
    assert site.ledger.rows("SELECT id, task FROM work_queue") == [(new, "fleet.noop")]
    assert site.ledger.rows("PRAGMA integrity_check") == [("ok",)]
    Path(f"{site.database}-wal.stale").rename(site.home / "old.db-wal")
    connection = sqlite3.connect(site.home / "old.db")
    assert connection.execute("SELECT id, task FROM work_queue").fetchall() == [(old, "note"), (old + 1, "note")]
    connection.close()


@pytest.mark.sqlite_only("replaces a file")
@pytest.mark.parametrize("replace", [replace_by_moving, replace_by_removing, replace_by_restoring])
def test_a_database_that_is_replaced_ends_its_workers(site: Site, replace: object) -> None:
    """When another file stands at the path, the workers of the old one stop within two heartbeats and exit with 3 and
    one line; nothing of theirs gets into the new file, and a new fleet works there (DK06)."""
    (site.directory / "backup").mkdir()
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 4)
    worker = site.worker(processes=2)
    site.wait_executing(tasks[:2])
    replace(site)  # type: ignore[operator]
    site.open_gate("open")
    assert worker.wait() == 3
    site.wait_gone()
    assert worker.text.count("what was opened there is gone, or another in its place") == 1
    assert site.ledger.value("SELECT count(*) FROM work_queue") == 0
    assert site.ledger.value("SELECT count(*) FROM worker_registry") == 0
    (new,) = site.enqueue("note")
    assert site.worker("--until-empty").wait() == 0
    site.ledger.check_done_once([new])


@pytest.mark.sqlite_only("removes a file")
def test_a_database_that_is_removed_is_not_made_again(site: Site) -> None:
    """When the file is gone the workers stop; no empty database appears in its place (DK06)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    worker = site.worker(processes=2)
    site.wait_executing([task])
    site.database.unlink()
    assert worker.wait() == 3
    site.wait_gone()
    assert not site.database.exists()


@pytest.mark.sqlite_only("only the server writes files")
def test_a_file_that_may_not_grow(site: Site) -> None:
    """A worker whose files may not grow any more (a quota) says so in one line and leaves what it ran to others; the
    database stays sound (DK01)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=limited")
    site.wait_executing([task])
    ((_, pid),) = site.workers().values()
    for process in [pid, *site.keepers()]:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    site.open_gate("open")
    site.wait_until(lambda: "trying again" in site.log_text(), "the quota is met")
    assert procfs.is_alive(pid), "SIGXFSZ is no reason to die"
    for process in [pid, *site.keepers()]:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    site.wait_finished([task])
    site.ledger.check_done_once([task])
    os.kill(pid, signal.SIGTERM)
