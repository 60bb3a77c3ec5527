"""A whole fleet behind PgBouncer: what works in session mode and in transaction mode, and what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from tests.faults.test_postgresql import Remote
from tests.pgbouncer import Bouncer, PoolMode, pgbouncer
from tests.postgres import PostgresServer
from tests.processes.harness import Site

pytestmark = pytest.mark.remote


MODES: tuple[PoolMode, ...] = ("session", "transaction")
DEAF = "passes no notifications on"


@pytest.fixture(scope="module", params=MODES)
def bouncer(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Bouncer]:
    """Give a pool of each mode before the session's server; that of transactions has two connections."""
    size = "2" if request.param == "transaction" else "20"
    with pgbouncer(postgres, request.param, default_pool_size=size) as bouncer:
        yield bouncer


@pytest.fixture
def pooled(bare_site: Site, bouncer: Bouncer, new_postgres_url: str) -> Iterator[Remote]:
    """Give a fleet behind the pool."""
    yield Remote(bare_site, bouncer.url(new_postgres_url))
    bare_site.kill_all()


def test_a_fleet_behind_a_pool(pooled: Remote, bouncer: Bouncer, new_postgres_url: str) -> None:
    """Workers behind a pool execute each task once, are told of tasks or say once that they look for them instead,
    drain, and take no more of the server's connections than the pool has."""
    site = pooled.site
    site.open_gate("open")
    worker = pooled.worker("--processes=4")
    active = "SELECT count(*) FROM worker_registry WHERE status = 'active'"
    site.wait_until(lambda: pooled.value(active) == 4, "four workers are active")
    tasks = [pooled.enqueue("open") for _ in range(20)]
    for task in tasks:
        pooled.wait_done(task)
    assert sorted(pooled.executions()) == sorted(f"{task} 1" for task in tasks)
    if bouncer.mode == "transaction":
        site.wait_until(lambda: DEAF in site.log_text(), "the keeper, with idle workers, says that it looks")
        assert site.log_text().count(DEAF) == 1
        database = make_url(new_postgres_url).database
        [pool] = [row for row in bouncer.ask("SHOW POOLS") if row["database"] == database]
        assert sum(pool[f"sv_{state}"] for state in ("active", "idle", "used", "tested")) <= 2
        assert pool["cl_active"] + pool["cl_waiting"] >= 5
    else:
        assert DEAF not in site.log_text()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert pooled.value("SELECT count(*) FROM work_queue WHERE status <> 'done'") == 0


def test_commands_behind_a_pool(pooled: Remote, new_postgres_url: str) -> None:
    """The scaler starts workers behind a pool and stops them, and commands for people read and write through it."""
    site = pooled.site

    def run(*arguments: str) -> str:
        running = site.start("-m", *arguments, env={"FLEET_DB": pooled._url})
        assert running.wait() == 0, running.text
        return running.text

    options = ("--", "--heartbeat-interval=0.5", "--lease=5")
    run("fleet.cli.scaler", "--target-workers=2", "--wait=30", *options)
    run("fleet", "enqueue", "fleet.noop", "--count=50")
    done = "SELECT count(*) FROM work_queue WHERE status = 'done'"
    site.wait_until(lambda: pooled.value(done) == 50, "all tasks are done")
    assert "2" in run("fleet", "status")
    run("fleet", "db", "vacuum")
    run("fleet", "prune", "--older-than=0s")
    run("fleet.cli.scaler", "--target-workers=0", "--wait=30", *options)
    site.wait_gone()


def test_a_pool_that_restarts(bare_site: Site, postgres: PostgresServer, new_postgres_url: str) -> None:
    """A pool whose connections to the server are ended costs no ownership: what runs is executed once, and idle workers
    go on (DX09, ST18)."""
    with pgbouncer(postgres, "transaction") as bouncer:
        remote = Remote(bare_site, bouncer.url(new_postgres_url))
        task = remote.enqueue("open")
        remote.worker("--processes=2", "--heartbeat-interval=1", "--lease=20")
        bare_site.wait_until(remote.executions, "the task is begun")
        direct = Remote(bare_site, new_postgres_url)
        direct.value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        bouncer.ask("PAUSE")
        bouncer.ask("RESUME")
        bare_site.open_gate("open")
        remote.wait_done(task)
        later = remote.enqueue("open")
        remote.wait_done(later)
        assert remote.executions() == [f"{task} 1", f"{later} 1"]
        bare_site.kill_all()
