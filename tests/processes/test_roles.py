"""A whole fleet on a server, each part with the login of its role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import make_url

from fleet.storage.interfaces import Storage
from fleet.storage.server.roles import Role
from tests.databases import opened
from tests.logins import PASSWORD, logins
from tests.processes.harness import Site
from tests.storage.samples import execute

TEMPLATE = ("--", "--tasks=tests.processes.plain_jobs", "--heartbeat-interval=0.5", "--lease=2", "--idle-wait=1")


@pytest.fixture
def urls(new_postgres_url: str) -> Iterator[Mapping[Role, str]]:
    """Give a login of each role to a database of its own."""
    with logins(new_postgres_url) as found:
        yield found


@pytest.fixture
def owner(new_postgres_url: str) -> Iterator[Storage]:
    """Give that database as its owner sees it."""
    store = opened(new_postgres_url)
    yield store
    store.close()


def scaler(site: Site, urls: Mapping[Role, str], *options: str) -> str:
    """Run a pass to its end with the scaler's login, and the workers' in a variable of its own; return its output."""
    running = site.start(
        "-m",
        "fleet.cli.scaler",
        *options,
        env={
            "FLEET_DB": urls[Role.SCALER],
            "FLEET_WORKER_DB": "env:FOR_WORKERS",
            "FOR_WORKERS": urls[Role.WORKER],
            "XDG_STATE_HOME": str(site.home),
        },
    )
    assert running.wait() == 0, running.text
    return running.text


def fleet(site: Site, url: str, *arguments: str) -> str:
    """Run a command with a login; return what it printed."""
    running = site.start("-m", "fleet", *arguments, env={"FLEET_DB": url})
    assert running.wait() == 0, running.text
    return running.text


def environments(site: Site) -> list[dict[str, str]]:
    """Return the variables of every worker process of a site."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            raw = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        variables = dict(line.split("=", 1) for line in raw.decode("utf-8", "replace").split("\0") if "=" in line)
        if variables.get("FLEET_TEST_SITE") == site.mark and "FLEET_GROUP_ID" in variables:
            found.append(variables)
    return found


def test_a_fleet_within_its_roles(
    bare_site: Site, urls: Mapping[Role, str], owner: Storage, new_postgres_url: str
) -> None:
    """Tasks are enqueued, executed, watched and scaled, each by the login of its role; nobody is refused anything, and
    workers have no login but their own (SE03)."""
    site, owner_url = bare_site, new_postgres_url
    execute(owner, "UPDATE fleet_meta SET value = '2' WHERE name = 'retention_seconds'")
    for limit in (("k", "--running", "1"), ("slow", "--rate", "5/s")):
        fleet(site, owner_url, "limit", "set", *limit)
    fleet(site, owner_url, "schedule", "add", "s", "note", "--every", "1s")
    for options in (
        ("note", "--count", "5"),
        ("note", "--depends-on", "1", "--batch", "b", "--then", "note"),
        ("note", "--concurrency-key", "k", "--count", "2"),
        ("note", "--concurrency-key", "slow", "--count", "2"),
        ("flaky",),
        ("die", "--max-attempts", "1"),
        ("steps",),
    ):
        fleet(site, urls[Role.ENQUEUER], "enqueue", *options)
    scaler(site, urls, "--target-workers=2", "--wait=60s", *TEMPLATE)
    found = environments(site)
    assert found
    for variables in found:
        named = {name for name, value in variables.items() if PASSWORD in value}
        assert named == {"FLEET_DB"}
        assert make_url(variables["FLEET_DB"]) == make_url(urls[Role.WORKER])
        assert not {"FLEET_WORKER_DB", "FOR_WORKERS"} & set(variables)
    fleet(site, owner_url, "schedule", "remove", "s")
    over = "SELECT 1 FROM work_queue WHERE status IN ('blocked', 'scheduled', 'pending', 'running')"
    site.wait_until(lambda: not execute(owner, over), "all tasks have ended", 60.0)
    assert {row["error_kind"] for row in execute(owner, "SELECT error_kind FROM work_attempt")} <= {"Retry", "exited"}
    logged_in = execute(
        owner, "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE 't%'"
    )
    assert [row["usename"].endswith("_worker_login") for row in logged_in] == [True]
    fleet(site, urls[Role.READER], "workers")
    site.wait_until(lambda: not execute(owner, "SELECT 1 FROM work_queue"), "all tasks are pruned", 60.0)
    scaler(site, urls, "--target-workers=0")
    live = "SELECT 1 FROM worker_registry WHERE status IN ('active', 'terminating')"
    site.wait_until(lambda: not execute(owner, live), "the workers have ended", 60.0)
    logs = [path.read_text() for path in site.home.rglob("*.log")]
    assert logs
    for log in logs:
        assert "may not do that" not in log
        assert "permission denied" not in log
        assert PASSWORD not in log


def test_workers_without_a_login_of_their_own_fail_as_a_launch(
    bare_site: Site, urls: Mapping[Role, str], owner: Storage
) -> None:
    """A scaler that hands its own login to workers is told why they do not come up: the launch fails, nothing hangs."""
    environment = {"FLEET_DB": urls[Role.SCALER], "XDG_STATE_HOME": str(bare_site.home)}
    running = bare_site.start("-m", "fleet.cli.scaler", "--target-workers=1", *TEMPLATE, env=environment)
    assert running.wait() == 0, running.text
    bare_site.wait_until(lambda: not environments(bare_site), "the launch has ended", 60.0)
    again = bare_site.start("-m", "fleet.cli.scaler", "--target-workers=1", *TEMPLATE, env=environment)
    again.wait()
    assert "this login may not do that (registering workers)" in again.text
    assert execute(owner, "SELECT status FROM worker_group ORDER BY created_at LIMIT 1") == [{"status": "failed"}]
    assert execute(owner, "SELECT 1 FROM worker_registry") == []
