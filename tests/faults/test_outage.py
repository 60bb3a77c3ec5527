"""A server that is away for a while, and connections that end in the middle of something: everybody goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.test_postgresql import own_server
from tests.postgres import PostgresServer, start_server
from tests.processes import procfs
from tests.processes.harness import Site
from tests.processes.test_adapter import adapter, commands, standing, wait_standing

pytestmark = pytest.mark.remote


POINTS = ("adapter.taken", "adapter.spawned", "adapter.noted", "adapter.replied")
OVER = "no longer so: the database does not answer"
LAST_PASS = "SELECT last_cycle_at FROM scheduler"
END_SESSIONS = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Give a server that may be stopped."""
    with start_server(tmp_path_factory.mktemp("own")) as server:
        own_server(server)
        yield server


@pytest.fixture
def site(server: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    """Give a fleet on that server."""
    site = Site(tmp_path, server.create_database())
    site.create()
    yield site
    site.close()


def test_everybody_outlives_an_outage(site: Site, server: PostgresServer) -> None:
    """Workers, their supervisor, a standing adapter and a scaler that repeats its passes say that the server is away,
    and go on when it is back: what was executed meanwhile is executed once, nobody was replaced, and orders are carried
    out again, after an orderly stop as after a crash."""
    patient = ("--", "--tasks=tests.processes.jobs", "--heartbeat-interval=0.5", "--lease=60", "--idle-wait=1")
    stands = adapter(site, "--lease=60")
    wait_standing(site, 1)
    scaler = site.scaler("--target-workers=3", "--every=1", *patient)
    workers = site.wait_workers(3)
    tasks = site.enqueue("hold", {"gate": "first"})
    site.wait_executing(tasks)
    for number, mode in enumerate(("fast", "immediate"), 1):

        def said(number: int = number) -> bool:
            return stands.text.count("the database does not answer: ") == number == scaler.text.count("error: ")

        # A crash may take the last claims with it, but nothing from before a durable commit, as this one.
        site.ledger.write(f"CREATE TABLE durable_{number} ()")
        server.restart(mode, lambda said=said: site.wait_until(said, "adapter and scaler say so"))
        before = site.ledger.value(LAST_PASS)
        site.wait_until(lambda number=number: stands.text.count(OVER) == number, "the adapter says that it is over")
        site.wait_until(lambda before=before: site.ledger.value(LAST_PASS) > before, "the scaler passes again")
        gate = f"gate {number}"
        tasks += site.enqueue("hold", {"gate": gate})
        site.wait_executing(tasks)
        assert site.workers() == workers
    assert site.scaler("--target-workers=4", *patient).wait() == 0
    assert workers.items() <= site.wait_workers(4).items()
    for gate in ("first", "gate 1", "gate 2"):
        site.open_gate(gate)
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    assert standing(site) == (1, stands.pid)
    assert {status for _, _, status in commands(site)} == {"succeeded"}
    for running in (scaler, stands):
        assert not running.ended()
        running.signal(signal.SIGTERM)
    assert stands.wait() == 0


def test_a_crash_of_the_server_repeats_the_last_and_loses_nothing(site: Site, server: PostgresServer) -> None:
    """Claims and results that were not on the server's disk when it crashed are as if they had not been: those tasks
    are executed again, by workers that live on, and each comes to its end once; what was enqueued is there."""
    # Much longer than usual, so that the crash takes much with it.
    for sql in ("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"):
        server.administer(sql)
    site.worker("--lease=60", processes=2)
    workers = site.wait_workers(2)
    tasks = site.enqueue("note", count=50)
    held = site.enqueue("hold", {"gate": "open"})
    site.wait_executing([*tasks, *held])
    server.restart("immediate")
    site.open_gate("open")
    site.wait_finished([*tasks, *held])
    site.ledger.check_done_once([*tasks, *held])
    assert len(site.ledger.executions()) > len(tasks) + 1
    assert set(site.workers()) == set(workers)


@pytest.mark.parametrize("point", POINTS)
def test_a_command_whose_connections_end_in_its_middle_has_one_effect(site: Site, point: str) -> None:
    """An adapter whose sessions are ended while it carries out an order attaches to what it has begun: one group, one
    reply (AD08)."""
    stopped = site.directory / "stopped"
    stands = adapter(site, "--lease=60", FLEET_FAULTS=f"{point}=once:{stopped}:stop")
    wait_standing(site, 1)
    scaler = site.scaler("--target-workers=2", *site.template())
    site.wait_until(lambda: stopped.exists() and procfs.state(stands.pid) == "T", f"the adapter stands at {point}")
    site.ledger.write(END_SESSIONS)
    stands.signal(signal.SIGCONT)
    assert scaler.wait() == 0
    site.wait_workers(2)
    site.wait_until(lambda: commands(site) == [("start_worker_group", "here", "succeeded")], "it is replied to once")
    assert site.ledger.value("SELECT count(*) FROM worker_group") == 1
    assert len(site.supervisors()) == 1
    assert not stands.ended()
