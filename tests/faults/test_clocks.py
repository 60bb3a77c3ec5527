"""Clocks that step, run in another zone, or disagree with each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from fleet.clock import ManualClock
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from tests.databases import opened
from tests.faults.commands import python
from tests.postgres import PostgresServer
from tests.processes.harness import ROOT, WORKER_OPTIONS, Running, Site
from tests.storage.samples import nobody, registration

HOUR = 3600


class Host:
    """A host whose wall clock a test steps.

    Args:
        site: the fleet on it.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._offset = site.directory / "offset"
        self.step(0)

    def step(self, seconds: float) -> None:
        """Put the clock `seconds` off the true time."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(str(seconds))
        os.replace(fresh, self._offset)

    def start(self, module: str, *arguments: str) -> Running:
        """Start a command line on this host."""
        return self._site.start("-m", "tests.faults.skewed", str(self._offset), module, *arguments)

    def worker(self, *options: str, processes: int = 1) -> Running:
        """Start `fleet-worker` on this host."""
        return self.start("fleet.cli.worker", *self._site.worker_arguments(*options, processes=processes))


def stamp(moment: datetime) -> str:
    """Return a time as a row has it, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def wait_for_beats(site: Site, offset: float) -> None:
    """Wait until every active worker beats by a clock that is `offset` seconds off, and maintenance has passed."""
    # On a server beats go by its clock, whatever the hosts say.
    offset = 0 if site.is_remote else offset
    about = [stamp(datetime.now(UTC) + timedelta(seconds=offset + around)) for around in (0, HOUR / 2)]
    by_now = """SELECT min(CASE WHEN last_heartbeat > ? AND last_heartbeat < ? THEN 1 ELSE 0 END)
        FROM worker_registry WHERE status = 'active'"""
    site.wait_until(lambda: site.ledger.value(by_now, *about), "the workers beat by the new clock")
    seen = site.ledger.value("SELECT epoch FROM maintenance")
    ended = "SELECT epoch > ? AND holder_json IS NULL FROM maintenance"
    site.wait_until(lambda: site.ledger.value(ended, seen), "maintenance has passed since")


def test_a_clock_that_steps_loses_nobody(site: Site) -> None:
    """When the wall clock is set forward and back under running workers, nobody is lost, what runs is executed once,
    and work that comes afterwards is done at once: durations do not come from the wall clock (CK03, CK04, CK05)."""
    host = Host(site)
    held = site.enqueue("hold", *[{"gate": "open"}] * 2)
    worker = host.worker("--idle-wait=0.2", processes=3)
    site.wait_executing(held)
    before = site.wait_workers(3)
    wait_for_beats(site, 0)
    for step in (HOUR, -HOUR):
        host.step(step)
        wait_for_beats(site, step)
        began = time.monotonic()
        new = site.enqueue("note", count=5)
        site.wait_finished(new)
        assert time.monotonic() - began < 5.0
        assert site.workers() == before
        site.ledger.check_executed_once(new)
    site.open_gate("open")
    site.wait_finished(held)
    site.ledger.check_executed_once(held)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Traceback" not in site.log_text()


def test_a_start_does_not_last_as_long_as_a_step(site: Site) -> None:
    """With rows that are an hour ahead, as after a clock that was set back, workers start, claim and drain in the usual
    time, and a scaler pass works (CK04, CK05)."""
    host = Host(site)
    host.step(HOUR)
    (first,) = site.enqueue("note")
    assert host.worker("--until-empty").wait() == 0
    scaler = ("fleet.cli.scaler", f"--db-path={site.database}", "--target-workers=0", "--", *WORKER_OPTIONS)
    assert host.start(*scaler).wait() == 0
    host.step(0)
    (second,) = site.enqueue("note")
    began = time.monotonic()
    assert host.worker("--until-empty").wait() == 0
    assert time.monotonic() - began < 15
    site.ledger.check_executed_once([first, second])
    assert host.start(*scaler).wait() == 0


def test_a_late_observer_loses_nobody(site: Site) -> None:
    """A scaler pass after a long time without any judges by what the beats in the database say, not by how long it was
    away (CK03)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker()
    site.wait_executing([task])
    before = site.workers()
    site.scale(0, "--pool=another", wait=None)
    site.ledger.write("UPDATE scheduler SET last_cycle_at = '2026-01-01T00:00:00.000Z'")
    site.scale(0, "--pool=another", wait=None)
    assert site.workers() == before
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])


@pytest.mark.parametrize(("zone", "suite"), [("Pacific/Auckland", "rescue"), ("America/St_Johns", "finish")])
def test_every_zone_gives_the_same(zone: str, suite: str, postgres: PostgresServer, tmp_path: Path) -> None:
    """The suite that every store has to pass gives the same in zones far from UTC, on both databases (CK07, CK10)."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]
    done = subprocess.run(
        [*command, f"tests/storage/conformance/test_{suite}.py"],
        cwd=ROOT,
        env={**os.environ, "TZ": zone, "FLEET_TEST_POSTGRES_URL": postgres.url("postgres")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_time_without_a_zone_is_refused(site: Site) -> None:
    """A time on the command line that names no zone is refused; one that names it is kept in UTC, whatever zone the
    shell is in (CK08)."""
    enqueue = ("-m", "fleet", "enqueue", "note", f"--db-path={site.database}")
    there = {"TZ": "Asia/Kolkata"}
    python(site, *enqueue, "--at", "2030-01-01T00:00:00", env=there).refused(2, "zone")
    assert python(site, *enqueue, "--at", "2030-01-01T00:00:00+05:30", env=there).code == 0
    assert site.ledger.rows("SELECT available_at FROM work_queue") == [("2029-12-31T18:30:00.000Z",)]


def test_a_servers_clock_is_the_only_one(postgres_url: str) -> None:
    """On PostgreSQL hosts whose clocks are years apart give and judge leases by the server's (CK01)."""
    past = opened(postgres_url, clock=ManualClock(datetime(2001, 1, 1, tzinfo=UTC)))
    future = opened(postgres_url, clock=ManualClock(datetime(2051, 1, 1, tzinfo=UTC)))
    try:
        record = past.registry.register(registration("skewed"), nobody)
        assert abs((record.lease_expires_at - datetime.now(UTC)).total_seconds()) < 60
        assert future.control.rescue(None, nobody, 10) == ()
    finally:
        past.close()
        future.close()


def test_a_lease_is_never_born_old(postgresql: Storage) -> None:
    """In a transaction that is open for long, times are those of the statement and not of its beginning (CK09)."""
    with postgresql.transaction() as transaction:
        early = postgresql.queue.enqueue([NewTask("note")], transaction=transaction).ids[0]
        transaction.connection.execute(text("SELECT pg_sleep(0.6)"))
        late = postgresql.queue.enqueue([NewTask("note")], transaction=transaction).ids[0]
    created = [row.created_at for task in (early, late) if (row := postgresql.queue.get(task)) is not None]
    assert (created[1] - created[0]).total_seconds() > 0.5
