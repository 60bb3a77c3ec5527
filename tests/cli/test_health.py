"""`fleet worker show|restart`, `fleet quarantine list|release`, and health in `fleet workers` and `fleet status`."""

from __future__ import annotations

import pytest

from fleet.domain.liveness import ProcessIdentity
from fleet.domain.orders import OrderKind
from fleet.domain.quarantine import NewQuarantine, Quarantine, Scope
from fleet.domain.worker import Beat
from fleet.process import identify
from fleet.storage.interfaces import Storage
from tests.cli.conftest import Command
from tests.cli.test_registry import register
from tests.storage.conformance.test_health import WELL
from tests.storage.samples import execute


def tell(storage: Storage, name: str, **given: object) -> None:
    """Beat with the metrics of a worker that is well, but for what is given."""
    at = storage.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    storage.registry.beat([Beat(name, f"{name}-1", metadata={"at": at, **WELL, **given})])


def shut_away(storage: Storage, subject: str = "w", scope: Scope = Scope.WORKER) -> Quarantine:
    """Begin a quarantine with two tasks as evidence."""
    tasks = [{"task_id": number, "failed_on": subject, "error": "no device", "done_by": "good"} for number in (3, 4)]
    found = storage.health.quarantine(NewQuarantine(scope, subject, {"tasks": tasks}, "2 tasks failed here", 3600))
    assert found is not None
    return found


def test_workers_show_how_they_are(fleet: Command, database: Storage) -> None:
    """Each live worker's health is told as of now, with the checks that it does not pass; JSON has every check."""
    for name in ("a", "b", "c"):
        register(database, name)
    tell(database, "a")
    tell(database, "b", rss_mb=600, recent={"seconds": 600, "done": 8, "failed": 2})
    lines = fleet("workers").out.splitlines()
    assert "HEALTH" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:]] == ["a", "b", "c"]
    assert "healthy" in lines[1]
    assert "unhealthy: memory, error_rate" in lines[2]
    assert "unknown" in lines[3]
    row = fleet("workers", "--json").document[1]
    assert (row["health"], row["health_checks"]["memory"]["verdict"]) == ("unhealthy", "fail")
    assert row["health_checks"]["memory"]["text"] == "600 MiB resident of 512 allowed"


def test_ended_workers_show_how_they_were(fleet: Command, database: Storage) -> None:
    """Of an ended worker the last stored verdict is shown, whatever somebody wrote there."""
    register(database, "w")
    execute(database, "UPDATE worker_registry SET health = 'unhealthy', health_json = '[7]'")
    database.registry.end("w", "w-1", reason="over")
    done = fleet("workers", "--all")
    assert (done.code, "unhealthy: " in done.out) == (0, True)
    assert fleet("worker", "show", "w").code == 0


def test_status_of_an_unhealthy_worker(fleet: Command, database: Storage) -> None:
    """An unhealthy worker is a problem with its reason and what to do, and exit code 1; a degraded one is a note."""
    register(database, "a")
    register(database, "b")
    tell(database, "a")
    tell(database, "b", rss_mb=470)
    done = fleet("status")
    assert done.code == 0
    assert "health   1 healthy, 1 degraded" in done.out
    assert "note: worker b is degraded: memory: 470 MiB resident of 512 allowed" in done.out
    tell(database, "a", rss_mb=600)
    done = fleet("status")
    assert done.code == 1
    assert (
        "problem: worker a is unhealthy: memory: 600 MiB resident of 512 allowed "
        "(fleet worker restart a replaces it after its task)" in done.out
    )
    assert fleet("status", "--json").document["health"] == {
        "healthy": 0,
        "degraded": 1,
        "unhealthy": 1,
        "unknown": 0,
    }


def test_status_of_a_quarantine(fleet: Command, database: Storage) -> None:
    """A worker in quarantine is a problem with what to do, and exit code 1, until it is released."""
    register(database, "w")
    tell(database, "w")
    found = shut_away(database)
    done = fleet("status")
    assert done.code == 1
    assert f"problem: worker w is in quarantine until {found.until:%Y-%m-%d %H:%M:%S}Z: 2 tasks failed here" in done.out
    assert "fleet quarantine release w" in done.out
    assert "workers  1 quarantined" in done.out
    assert fleet("workers", "--json").document[0]["state"] == "quarantined"
    assert fleet("quarantine", "release", "w").out == (
        f"worker w claims again (quarantine {found.quarantine_id} is over)\n"
    )
    assert fleet("status").code == 0


def test_status_of_a_quarantine_without_workers(fleet: Command, database: Storage) -> None:
    """A quarantine whose workers have all ended is no problem."""
    shut_away(database, "somewhere", Scope.HOST)
    assert fleet("status").code == 0


def test_quarantines_are_listed_with_their_evidence(fleet: Command, database: Storage) -> None:
    """The list shows what is open, with tasks and an error; all with --all; JSON has the table's columns."""
    assert fleet("quarantine", "list").out == "no quarantines\n"
    first, second = shut_away(database), shut_away(database, "h", Scope.HOST)
    database.health.release("w", "command")
    done = fleet("quarantine", "list")
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [[str(second.quarantine_id), "host", "h"]]
    assert "3 4: no device" in done.out
    rows = fleet("quarantine", "list", "--all", "--json").document
    assert [row["id"] for row in rows] == [second.quarantine_id, first.quarantine_id]
    assert (rows[1]["released_by"], rows[0]["released_by"]) == ("command", None)
    [stored, _] = execute(database, "SELECT * FROM quarantine")
    assert rows[0].keys() == {name.removesuffix("_json") for name in stored}


def test_evidence_that_somebody_broke_is_listed(fleet: Command, database: Storage) -> None:
    """A row whose evidence is none is listed like any other."""
    shut_away(database)
    for broken in ("[]", '{"tasks": 7}', '{"tasks": [7, null]}'):
        execute(database, "UPDATE quarantine SET evidence_json = :broken", broken=broken)
        done = fleet("quarantine", "list")
        assert (done.code, "2 tasks failed here" in done.out, done.err) == (0, True, "")


def test_release_by_id_and_of_nothing(fleet: Command, database: Storage) -> None:
    """A quarantine is released by its id, too; where there is none, one line says so."""
    found = shut_away(database)
    [row] = fleet("quarantine", "release", found.quarantine_id, "--json").document
    assert (row["id"], row["released_by"]) == (found.quarantine_id, "command")
    fleet("quarantine", "release", "w").refused(1, "quarantine w: there is none open", "fleet quarantine list")


def test_worker_show(fleet: Command, database: Storage) -> None:
    """One worker is shown with every check, its quarantine, and what was ordered of it; JSON has all of it."""
    register(database, "w", group_id="g")
    tell(database, "w", rss_mb=600)
    shut_away(database)
    database.orders.give("w", "w-1", OrderKind.GET_STATUS, reason="test")
    out = fleet("worker", "show", "w").out
    assert "state                  quarantined" in out
    why = ["600", "MiB", "resident", "of", "512", "allowed"]
    assert ["memory", "fail", *why] in [line.split() for line in out.splitlines()]
    assert "in quarantine until" in out
    assert "get_status pending" in out
    document = fleet("worker", "show", "w", "--json").document
    assert (document["worker_id"], document["health"]) == ("w", "unhealthy")
    assert [order["kind"] for order in document["commands"]] == ["get_status"]
    assert [one["subject"] for one in document["quarantines"]] == ["w"]
    [stored] = execute(database, "SELECT * FROM worker_command")
    assert document["commands"][0].keys() == {name.removesuffix("_json") for name in stored}
    fleet("worker", "show", "x").refused(1, "worker x: there is none", "fleet workers --all")


def test_worker_restart(fleet: Command, database: Storage) -> None:
    """A restart is ordered once for one life; asked for again, the same order is named."""
    register(database, "w", group_id="g")
    assert fleet("worker", "restart", "w").out == "worker w restarts after what it executes (command 1)\n"
    assert fleet("worker", "restart", "w").out == "worker w is to restart already (command 1)\n"
    assert fleet("worker", "restart", "w", "--json").document["command_id"] == 1
    [order] = database.orders.list()
    assert (order.kind, order.incarnation) == (OrderKind.RESTART, "w-1")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("UPDATE worker_registry SET status = 'lost'", "worker w is lost: there is nothing to restart"),
        ("UPDATE worker_registry SET status = 'terminating'", "worker w is draining: it ends after what it executes"),
        ("UPDATE worker_registry SET group_id = NULL", "worker w belongs to no group, so nobody would start it again"),
        ("DELETE FROM worker_registry", "worker w: there is none"),
    ],
)
def test_a_restart_that_makes_no_sense(fleet: Command, database: Storage, prepare: str, message: str) -> None:
    """Whom nobody would put another in place of is not restarted, and one line says why."""
    register(database, "w", group_id="g")
    execute(database, prepare)
    fleet("worker", "restart", "w").refused(1, message)
    assert database.orders.list() == ()


def test_a_host_in_quarantine_covers_its_workers(fleet: Command, database: Storage) -> None:
    """Workers of a host in quarantine are quarantined, those of another are not."""
    register(database, "here")
    register(database, "there", ProcessIdentity(host="there", boot_id="b", pid_namespace="n", pid=1))
    shut_away(database, str(identify().host), Scope.HOST)
    states = {row["worker_id"]: row["state"] for row in fleet("workers", "--json").document}
    assert states == {"here": "quarantined", "there": "ready"}
    assert len(fleet("worker", "show", "here", "--json").document["quarantines"]) == 1
