"""The schema changes while somebody uses the database."""

from __future__ import annotations

import signal

from tests.processes.harness import WORKER_OPTIONS, Site

NEXT = ("-m", "tests.faults.next_release")


def schema_of(site: Site) -> str:
    """Return the version that the database says it has."""
    return str(site.ledger.value("SELECT version_num FROM fleet_schema_version"))


def test_of_many_upgrades_one_migrates(site: Site) -> None:
    """Of several upgrades at the same instant one migrates; the others wait and find nothing to do. Workers and scalers
    that start meanwhile never migrate: they work on the new schema or name the command (MG03)."""
    database = f"--db-path={site.database}"
    (task,) = site.enqueue("note")
    upgrades = [site.start(*NEXT, "0008", "fleet.cli.main", "db", "upgrade", database) for _ in range(3)]
    workers = [
        site.start(*NEXT, "0008", "fleet.cli.worker", "--until-empty", *site.worker_arguments()) for _ in range(3)
    ]
    scaler = site.start(*NEXT, "0008", "fleet.cli.scaler", "--target-workers=0", database, "--", *WORKER_OPTIONS)
    assert [one.wait() for one in upgrades] == [0, 0, 0]
    texts = sorted(one.text.rpartition(f"{site.database}: ")[2].strip() for one in upgrades)
    assert texts == ["schema 0009 already, nothing to do"] * 2 + ["upgraded from schema 0008 to 0009"]
    for one in (*workers, scaler):
        code = one.wait()
        assert code in (0, 3)
        assert code == 0 or "run `fleet db upgrade`" in one.text
    assert schema_of(site) == "0009"
    assert site.start(*NEXT, "0008", "fleet.cli.worker", "--until-empty", *site.worker_arguments()).wait() == 0
    site.ledger.check_done_once([task])


def test_only_the_command_migrates(site: Site) -> None:
    """Worker, scaler, status, init and enqueue of a newer release leave an older schema alone and name the command
    (MG03, MG04)."""
    database = f"--db-path={site.database}"
    for arguments in (
        ("fleet.cli.worker",),
        ("fleet.cli.scaler", "--target-workers=1"),
        ("fleet.cli.main", "status"),
        ("fleet.cli.main", "enqueue", "note"),
        ("fleet.cli.main", "init"),
    ):
        refused = site.start(*NEXT, "0008", *arguments, database)
        assert refused.wait() == 3
        assert refused.text.count("\n") == 1
        assert "has schema 0008, this release needs 0009" in refused.text
        assert "run `fleet db upgrade`" in refused.text
    assert schema_of(site) == "0008"


def test_workers_go_on_over_an_upgrade_that_lets_them(site: Site) -> None:
    """A column is added under running workers of the release before, because somebody says so: they claim, beat and
    complete as before, new ones of them start, and nothing is lost (MG02, MG04)."""
    (held,) = site.enqueue("hold", {"gate": "open"})
    site.worker(processes=2)
    site.wait_executing([held])
    before = site.wait_workers(2)
    upgrade = ("fleet.cli.main", "db", "upgrade", f"--db-path={site.database}")
    refused = site.start(*NEXT, "0008", *upgrade)
    assert refused.wait() == 1
    assert refused.text.count("\n") == 1
    assert "2 live workers use schema 0008: stop every fleet-worker" in refused.text
    assert schema_of(site) == "0008"
    forced = site.start(*NEXT, "0008", *upgrade, "--force")
    assert forced.wait() == 0, forced.text
    more = site.enqueue("note", count=20)
    site.open_gate("open")
    site.wait_finished([held, *more])
    site.ledger.check_executed_once([held, *more])
    assert site.workers() == before
    (last,) = site.enqueue("note")
    assert site.worker("--until-empty").wait() == 0
    site.ledger.check_executed_once([last])


def test_an_older_release_is_refused_by_a_schema_that_it_cannot_read(site: Site) -> None:
    """After an upgrade that says so, workers, scalers and commands of the older release are refused with the reason
    (MG04)."""
    upgrade = site.start(*NEXT, "0009", "fleet.cli.main", "db", "upgrade", f"--db-path={site.database}")
    assert upgrade.wait() == 0, upgrade.text
    for arguments in (("fleet.cli.worker",), ("fleet.cli.scaler",), ("fleet", "status")):
        refused = site.start("-m", *arguments, f"--db-path={site.database}")
        assert refused.wait() == 3
        assert refused.text.count("\n") == 1
        assert "upgrade sqlfleet" in refused.text


def test_an_upgrade_that_is_killed_changes_nothing(site: Site) -> None:
    """An upgrade whose process is killed in the middle leaves the schema as it was; the next succeeds (MG03)."""
    upgrade = (*NEXT, "0008", "fleet.cli.main", "db", "upgrade", f"--db-path={site.database}")
    marker = site.directory / "migrating"
    killed = site.start(*upgrade, env={"TEST_MIGRATING": str(marker)})
    site.wait_until(marker.exists, "the column is added, and not committed yet")
    killed.signal(signal.SIGKILL)
    killed.wait()

    def is_added() -> bool:
        return "of_next_release" in site.ledger.columns("work_queue")

    assert (schema_of(site), is_added()) == ("0008", False)
    again = site.start(*upgrade)
    assert again.wait() == 0, again.text
    assert (schema_of(site), is_added()) == ("0009", True)
