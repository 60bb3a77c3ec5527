"""The write lock: contended, held by strangers, held by handlers, and left alone by whoever has nothing to write."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest

from fleet.storage.database import BUSY_WAIT
from tests.processes.harness import HEARTBEAT, LEASE, Site
from tests.processes.stranger import write_lock

FAST = ("--heartbeat-interval=1", "--lease=4")


def commits(site: Site, seconds: float) -> int:
    """Return how many times the database was seen to change within a time."""
    watcher = sqlite3.connect(site.database, timeout=30)
    seen = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen.add(watcher.execute("PRAGMA data_version").fetchone()[0])
        time.sleep(0.001)
    watcher.close()
    return len(seen) - 1


def log_size(site: Site) -> int:
    """Return the size of the write-ahead log in bytes."""
    return site.database.with_name(site.database.name + "-wal").stat().st_size


def test_nobody_meets_the_lock_of_another(site: Site) -> None:
    """Eight workers that beat each second and two programs that enqueue as fast as they can: nobody is told of a lock,
    no worker ends, and every task is executed (LK01, LK07)."""
    site.worker(*FAST, processes=8)
    before = site.wait_workers(8)
    enqueuers = [site.start("-m", "tests.faults.enqueuer", str(site.database), "note", "600") for _ in range(2)]
    commands = [
        site.start("-m", "fleet", "enqueue", "note", f"--db-path={site.database}", "--count=10") for _ in range(3)
    ]
    assert [running.wait() for running in (*enqueuers, *commands)] == [0] * 5
    tasks = [task for (task,) in site.ledger.rows("SELECT id FROM work_queue")]
    assert len(tasks) == 1230
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    assert site.workers() == before
    text = site.log_text().lower()
    assert "locked" not in text
    assert "busy" not in text
    assert "trying again" not in text


def test_one_failed_beat_ends_nobody(site: Site) -> None:
    """A beat that could not be written is written a little later; the workers and what they run stay (LK01, DX08)."""
    once = site.directory / "beat-once"
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker(processes=2, env={"FLEET_FAULTS": f"keeper.beat=once:{once}:raise"})
    before = site.wait_workers(2)
    site.wait_until(lambda: "heartbeats are written again" in site.log_text(), "a later beat gets through")
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    assert site.workers() == before


def test_a_completion_outlasts_a_lock_longer_than_every_timeout(site: Site) -> None:
    """A task ends while a stranger holds the lock beyond busy time and lease: its result is written afterwards, once,
    and the log says what was waited for; a scaler pass meanwhile gives up with one line and no change (LK04, SC16)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    # From the first pass on the time that a stranger takes from all of them is known to be nobody's silence.
    site.wait_until(lambda: site.ledger.value("SELECT epoch FROM maintenance"), "maintenance has passed once")
    with write_lock(str(site.database)):
        site.open_gate("open")
        scaler = site.scaler("--target-workers=5", *site.template())
        site.wait_until(
            lambda: "recording task" in site.log_text(), "the worker has waited in vain once", BUSY_WAIT + LEASE + 10
        )
        assert site.status(task) == "running"
        assert scaler.wait() == 3
        assert scaler.text.count("\n") == 1
        assert "held the write lock" in scaler.text
    site.wait_finished([task])
    site.ledger.check_done_once([task])
    assert "trying again for up to" in site.log_text()
    assert len(site.workers()) == 1


def test_statistics_that_cannot_be_written_disturb_nobody(site: Site) -> None:
    """Workers execute and record although the side table that is for people only cannot be written; the log counts
    what was not stored (LK06)."""
    site.ledger.write("ALTER TABLE work_minute RENAME TO test_away")
    tasks = site.enqueue("note", count=50)
    worker = site.worker("--until-empty", processes=2)
    assert worker.wait() == 0, worker.text
    site.ledger.check_executed_once(tasks)
    assert "not stored" in site.log_text()
    assert "broken" not in site.log_text()


@pytest.mark.sqlite_only("counts the commits and the bytes of a file's write-ahead log")
def test_idle_workers_only_read(site: Site) -> None:
    """Twenty idle workers that look for work many times a second leave the log as it is: only the group's beats and
    maintenance passes commit (LK08)."""
    site.worker("--idle-wait=0.1", "--heartbeat-interval=20", "--lease=60", processes=20)
    site.wait_workers(20)
    site.wait_until(lambda: commits(site, 1.0) <= 2, "the workers have settled")
    before = log_size(site)
    assert commits(site, 3.0) <= 4, "some 600 looks for work, one maintenance pass"
    assert log_size(site) - before <= 100 * 1024
    began = time.monotonic()
    (task,) = site.enqueue("note")
    site.wait_finished([task])
    assert time.monotonic() - began < 2.0


@pytest.mark.sqlite_only("about the write-ahead log of a file")
def test_a_long_export_stops_nobody(site: Site) -> None:
    """A reader that keeps its snapshot for longer than a lease holds up no beat and no completion; afterwards the log
    is emptied again (LK10, ST18)."""
    site.worker("--worker-id=first")
    site.wait_workers(1)
    reader = sqlite3.connect(site.database, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM work_queue").fetchone()
    expiry = site.ledger.value("SELECT lease_expires_at FROM worker_registry")
    tasks = site.enqueue("note", count=20)
    site.wait_finished(tasks)
    beaten = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(beaten, expiry), "beats have gone on for longer than a lease")
    assert reader.execute("SELECT count(*) FROM work_queue").fetchone() == (0,)
    reader.execute("COMMIT")
    reader.close()
    site.ledger.check_executed_once(tasks)
    cleaner = sqlite3.connect(site.database, timeout=10)
    site.wait_until(
        lambda: cleaner.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "the log can be emptied"
    )
    cleaner.close()
    assert "trying again" not in site.log_text()


def test_no_lock_is_held_while_a_handler_runs(site: Site) -> None:
    """While a handler runs for long, anybody may write: the product has no transaction open (LK13)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker()
    site.wait_executing([task])
    for _ in range(20):
        with write_lock(str(site.database), patience=0.5):
            pass
    site.open_gate("open")
    site.wait_finished([task])


def test_a_handler_that_locks_its_own_fleet(site: Site) -> None:
    """A handler that keeps the fleet's write lock for many heartbeats stays the owner of its task, which is executed
    once; nobody is lost meanwhile (LK13, DX17)."""
    (task,) = site.enqueue("lock_own_fleet", {"seconds": 8 * HEARTBEAT})
    for name in ("first", "second"):
        site.worker("--tasks=tests.faults.jobs", f"--worker-id={name}", "--lease=10")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    assert len(site.wait_workers(2)) == 2
    assert "is lost" not in site.log_text()


def test_a_huge_sweep_lets_everybody_through(site: Site) -> None:
    """While maintenance works off tens of thousands of ended tasks and two thousand orphans, no live worker misses its
    lease, and other writers are served in between (LK09)."""
    site.enqueue("note", count=3)
    site.worker("--worker-id=live", "--until-empty").wait()
    names = [name for name in site.ledger.columns("work_queue") if name != "id"]
    columns = ", ".join(names)
    series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
    old = {"finished_at": "'2020-01-01T00:00:00.000Z'"}
    dead = {"status": "'running'", "worker": "'gone-' || i % 40", "incarnation": "'gone'", "claim_token": "1"}
    dead |= {"started_at": "created_at", "claimed_at": "created_at", "finished_at": "NULL", "result_json": "NULL"}
    site.ledger.write("DROP TRIGGER test_ledger_writes" + (" ON work_queue" if site.is_remote else ""))
    for changes, count in ((old, 40_000), (dead, 2_000)):
        values = ", ".join(changes.get(name, name) for name in names)
        site.ledger.write(
            f"{series.format(count)} INSERT INTO work_queue ({columns}) SELECT {values} FROM work_queue, n "
            "WHERE work_queue.id = (SELECT min(id) FROM work_queue)"
        )
    waits: list[float] = []
    over = threading.Event()
    writer = threading.Thread(target=lambda: _write_until(site, over, waits))
    # Before the workers, who begin to sweep at once.
    writer.start()
    try:
        ended = "SELECT count(*) FROM work_queue WHERE finished_at < '2021-01-01T00:00:00.000Z'"
        first = site.ledger.value(ended)
        site.worker("--worker-id=first", processes=4)
        before = site.wait_workers(4)
        left = "SELECT count(*) FROM work_queue WHERE status = 'running' AND worker LIKE 'gone-%'"
        site.wait_until(lambda: site.ledger.value(left) == 0, "all orphans are rescued")
        site.wait_until(lambda: site.ledger.value(ended) < first - 10_000, "ended tasks are pruned, batch after batch")
    finally:
        over.set()
        writer.join()
    assert site.workers() == before
    assert len(waits) > 10
    assert max(waits) < LEASE / 2


def _write_until(site: Site, over: threading.Event, waits: list[float]) -> None:
    while not over.is_set():
        began = time.monotonic()
        site.enqueue("fleet.noop", queue="elsewhere")
        waits.append(time.monotonic() - began)
        over.wait(0.01)
