"""The password of a database's URL is in the environment of processes, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from fleet.storage.interfaces import Storage
from fleet.storage.tables import metadata
from tests.databases import opened
from tests.processes.harness import Site
from tests.storage.samples import execute

PASSWORD = "open-sesame-47"
TEMPLATE = ("--", "--tasks=tests.processes.plain_jobs", "--heartbeat-interval=0.5", "--lease=2", "--idle-wait=1")


@pytest.fixture
def url(new_postgres_url: str) -> Iterator[str]:
    """Give the URL of a database with a password in it."""
    made = make_url(new_postgres_url)
    engine = create_engine(new_postgres_url, isolation_level="AUTOCOMMIT")
    name = f"secretive_{made.database}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"))
    yield made.set(username=name, password=PASSWORD).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP ROLE {name}"))
    engine.dispose()


@pytest.fixture
def store(url: str) -> Iterator[Storage]:
    """Give that database, open."""
    found = opened(url)
    yield found
    found.close()


def command_lines() -> list[bytes]:
    """Return what every process of this host was started with."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            found.append((entry / "cmdline").read_bytes() if entry.name.isdigit() else b"")
        except OSError:
            continue
    return [line for line in found if b"fleet" in line]


def check_command_lines(fewest: int) -> None:
    """Check that processes of a fleet are there, and none of them tells."""
    lines = command_lines()
    assert len(lines) >= fewest
    assert not [line for line in lines if PASSWORD.encode() in line]


def stored_texts(store: Storage) -> str:
    """Return all that a database holds, as text."""
    return "\n".join(
        row["line"]
        for table in sorted(metadata.tables)
        for row in execute(store, f"SELECT CAST(t AS text) AS line FROM {table} t")
    )


def test_no_argument_log_or_row_has_the_password(bare_site: Site, url: str, store: Storage) -> None:
    """While a scaler, an adapter, workers and commands run, and where they are refused, no command line
    of any process, no output, no log and no row has the password in it (SE03)."""
    site = bare_site
    environment = {"FLEET_DB": url, "XDG_STATE_HOME": str(site.home)}
    adapter = site.start("-m", "fleet.cli.adapter", "native", "--adapter-id=a", *TEMPLATE, env=environment)
    site.wait_until(lambda: execute(store, "SELECT 1 FROM worker_adapter"), "the adapter stands")
    for name in ("note", "flaky", "die", "steps"):
        assert site.start("-m", "fleet", "enqueue", name, "--max-attempts=2", env=environment).wait() == 0
    scaler = site.start("-m", "fleet.cli.scaler", "--target-workers=2", "--every=1s", *TEMPLATE, env=environment)
    over = "SELECT 1 FROM work_queue WHERE status IN ('blocked', 'scheduled', 'pending', 'running')"
    site.wait_until(lambda: execute(store, "SELECT 1 FROM worker_registry"), "workers are there", 60.0)
    check_command_lines(4)
    site.wait_until(lambda: not execute(store, over), "all tasks have ended", 60.0)
    check_command_lines(4)
    assert execute(store, "SELECT status FROM work_queue WHERE task = 'die'") == [{"status": "failed"}]
    assert site.start("-m", "fleet", "status", env=environment).wait() in (0, 1)
    assert PASSWORD not in stored_texts(store)
    wrong = {"FLEET_DB": url.replace(str(make_url(url).database), "no_such_database")}
    for module in ("fleet.cli.worker", "fleet.cli.scaler"):
        assert site.start("-m", module, env=wrong).wait() == 3
    site.kill_all()
    assert (adapter.wait(), scaler.wait()) == (-9, -9)
    texts = [path.read_text() for path in site.directory.rglob("*.log")]
    assert len(texts) > 8
    assert any("no_such_database" in said for said in texts)
    assert not [said for said in texts if PASSWORD in said]
