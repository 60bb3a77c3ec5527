"""Many processes meet at a database that does not exist yet."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tests.processes.counts import COUNTS
from tests.processes.harness import Site
from tests.processes.running import Running, read_bytes
from tests.processes.test_scalers import SCALER

OPENERS = 16


def test_sixteen_processes_open_a_missing_database(bare_site: Site) -> None:
    """Of sixteen processes that open a missing database at the same instant all succeed, each time (LK03, MG03)."""
    paths = [bare_site.home / f"{number}.db" for number in range(COUNTS.opening_rounds)]
    for opener in open_together(bare_site, paths):
        assert opener.wait(COUNTS.patience) == 0, opener.text
    for path in paths:
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM work_queue").fetchone() == (OPENERS,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


def open_together(site: Site, paths: list[Path]) -> list[Running]:
    """Start openers and let them at one path after the other, each when all of them are ready for it."""
    ready, told = os.pipe()
    gates = [os.pipe() for _ in paths]
    held = [gate for gate, _ in gates]
    words = [str(told), ",".join(map(str, held)), ",".join(map(str, paths))]
    openers = [site.start("-m", "tests.processes.openers", *words, inherited=(told, *held)) for _ in range(OPENERS)]
    for _, key in gates:
        read_bytes(ready, OPENERS)
        os.close(key)
    for descriptor in (ready, told, *held):
        os.close(descriptor)
    return openers


def test_workers_scaler_and_enqueuers_meet_at_a_missing_database(bare_site: Site) -> None:
    """Workers, a scaler and enqueuers that start at the same instant, before there is a database, all do their work
    (LK03, LK07)."""
    site = bare_site
    database = f"--db-path={site.database}"
    worker = ["fleet.cli.worker", *site.worker_arguments("--until-empty")]
    enqueue = ["fleet.cli.main", "enqueue", "fleet.noop", "--count=50", database]
    scale = [SCALER, database, "--target-workers=0"]
    for started in site.at_once(worker, worker, enqueue, enqueue, scale):
        assert started.wait() == 0, started.text
    site.worker("--until-empty").wait()
    assert site.ledger.rows("SELECT status, count(*) FROM work_queue GROUP BY 1") == [("done", 100)]
    site.wait_gone()
