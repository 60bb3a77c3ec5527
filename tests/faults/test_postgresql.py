"""What a server does to its clients: ends their connections, restarts, keeps rows locked, changes their tables."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from fleet.domain.task import NewTask
from tests.databases import opened
from tests.postgres import PostgresServer, start_server
from tests.processes.harness import Site
from tests.processes.running import Running
from tests.storage.samples import claim_one, enqueue_one, execute, finish, join, success

pytestmark = pytest.mark.remote


FLEET = ("--tasks=tests.faults.jobs", "--idle-wait=0.5")


class Remote:
    """A fleet whose database is on a server.

    Args:
        site: where its processes run.
        url: the database.
    """

    def __init__(self, site: Site, url: str) -> None:
        self.site = site
        self._url = url
        opened(url, create=True).close()

    def worker(self, *options: str) -> Running:
        """Start `fleet-worker`."""
        return self.site.start("-m", "fleet.cli.worker", *FLEET, *options, env={"FLEET_DB": self._url})

    def enqueue(self, gate: str) -> int:
        """Enqueue a task that waits at a gate; return its id."""
        store = opened(self._url)
        try:
            return store.queue.enqueue([NewTask("hold_anywhere", payload_json=f'{{"gate": "{gate}"}}')]).ids[0]
        finally:
            store.close()

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection as a stranger would."""
        return psycopg.connect(make_url(self._url).set(drivername="postgresql").render_as_string(False))

    def value(self, sql: str) -> Any:
        """Return the first column of the first row."""
        with self.connect() as connection:
            row = connection.execute(sql.encode()).fetchone()
            return row[0] if row else None

    def executions(self) -> list[str]:
        """Return the lines that handlers left."""
        path = self.site.directory / "executions"
        return path.read_text().splitlines() if path.exists() else []

    def wait_done(self, task: int) -> None:
        """Wait until a task is done."""
        sql = f"SELECT status FROM work_queue WHERE id = {task}"
        self.site.wait_until(lambda: self.value(sql) == "done", f"task {task} is done")


@pytest.fixture
def remote(bare_site: Site, new_postgres_url: str) -> Iterator[Remote]:
    """Give a fleet on the session's server."""
    yield Remote(bare_site, new_postgres_url)
    bare_site.kill_all()


def test_a_restarted_server_is_found_again(bare_site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Connections that end, and a server that stops and comes back, cost no ownership: what runs is executed once, and
    idle workers claim what comes afterwards, after a crash of the server too (DX09, ST18)."""
    with start_server(tmp_path_factory.mktemp("own")) as server:
        own_server(server)
        remote = Remote(bare_site, server.create_database())
        first = remote.enqueue("open")
        worker = remote.worker("--heartbeat-interval=1", "--lease=20", "--processes=2")
        bare_site.wait_until(lambda: len(remote.executions()) == 1, "the task is begun")
        remote.value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        second = remote.enqueue("open-at-once")
        bare_site.open_gate("open-at-once")
        remote.wait_done(second)
        server.restart("fast")
        third = remote.enqueue("open-at-once")
        remote.wait_done(third)
        bare_site.open_gate("open")
        remote.wait_done(first)
        assert sorted(remote.executions()) == sorted(f"{task} 1" for task in (first, second, third))
        server.restart("immediate")
        remote.wait_done(remote.enqueue("open-at-once"))
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait() == 0
        bare_site.kill_all()


def own_server(server: PostgresServer) -> None:
    """Skip where the server is somebody else's, who may not like it to be restarted."""
    if server._cluster is None:
        pytest.skip("the server named by FLEET_TEST_POSTGRES_URL is not ours to restart")


def test_rows_locked_by_a_stranger(remote: Remote) -> None:
    """While a stranger keeps registry rows locked, beats wait in short transactions: sessions do not pile up, the
    keeper is not taken for dead, and afterwards everything goes on (LK12)."""
    site = remote.site
    task = remote.enqueue("open")
    remote.worker("--heartbeat-interval=0.5", "--lease=30", "--processes=4")
    site.wait_until(lambda: remote.executions(), "the task is begun")
    site.wait_until(lambda: remote.value("SELECT count(*) FROM worker_registry") == 4, "all are there")
    with remote.connect() as stranger:
        stranger.execute("SELECT * FROM worker_registry FOR UPDATE")
        late = "SELECT min(last_heartbeat) < clock_timestamp() - interval '4 seconds' FROM worker_registry"
        site.wait_until(lambda: remote.value(late), "no beat was written for many heartbeats")
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert remote.value(waiting) <= 2
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert remote.value(sessions) <= 4 + 4
        stranger.rollback()
    site.wait_until(lambda: not remote.value(late), "beats are written again")
    site.open_gate("open")
    remote.wait_done(task)
    assert len(remote.executions()) == 1
    assert "has shown no life" not in site.log_text()


def test_rows_of_one_group_that_are_locked_cost_no_other_group_its_lease(remote: Remote) -> None:
    """While a stranger keeps the rows of one group's workers locked for several leases, the keeper of another beats as
    ever, whatever of its maintenance has to wait: its workers live on (LK12)."""
    site = remote.site
    usual = ("--heartbeat-interval=0.5", "--lease=3", "--processes=2")
    for name in ("held", "free"):
        remote.worker(*usual, f"--worker-id={name}")
    active = "SELECT count(*) FROM worker_registry WHERE status = 'active'"
    site.wait_until(lambda: remote.value(active) == 4, "all are there")
    lives = "SELECT string_agg(incarnation, ' ' ORDER BY worker_id) FROM worker_registry WHERE worker_id LIKE 'free%'"
    before = remote.value(lives)
    with remote.connect() as stranger:
        stranger.execute("SELECT * FROM worker_registry WHERE worker_id LIKE 'held%' FOR UPDATE")
        late = "SELECT min(last_heartbeat) < clock_timestamp() - interval '12 seconds' FROM worker_registry"
        site.wait_until(lambda: remote.value(late), "the locked rows have not been written for four leases")
        stranger.rollback()
    assert remote.value(lives) == before
    assert "fenced" not in "".join(path.read_text() for path in site.logs.glob("*free*"))


def test_a_column_is_added_under_prepared_statements(new_postgres_url: str) -> None:
    """A store whose statements are prepared goes on after a column was added to the tables that they use (MG02)."""
    store = opened(new_postgres_url)
    try:
        who = join(store)
        for number in range(16):
            if number == 8:
                for table in ("work_queue", "worker_registry", "claim_lane"):
                    execute(store, f"ALTER TABLE {table} ADD COLUMN added_later text")
            enqueue_one(store)
            assert finish(store, who, success(claim_one(store, who))) == 1
    finally:
        store.close()


def test_a_group_has_one_connection_for_each_worker_and_one_for_its_keeper(remote: Remote) -> None:
    """Eight workers that have executed have nine connections to the server with their keeper, and none for the
    supervisor."""
    remote.worker("--processes=8")
    active = "SELECT count(*) FROM worker_registry WHERE status = 'active'"
    remote.site.wait_until(lambda: remote.value(active) == 8, "eight workers are active")
    remote.site.open_gate("g")
    for task in [remote.enqueue("g") for _ in range(30)]:
        remote.wait_done(task)
    sessions = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
    assert remote.value(sessions) == 9
