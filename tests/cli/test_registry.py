"""`fleet workers`, `fleet groups`, `fleet handlers`, `fleet status`, and `fleet` itself."""

from __future__ import annotations

import re
import sys

import pytest

from fleet import process as processes
from fleet.domain.execution import Claimant
from fleet.domain.group import NewGroup
from fleet.domain.limits import Limit
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.schedule import Schedule
from fleet.domain.task import HandlerDefaults, NewTask
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.process import identify, is_dead
from fleet.storage.interfaces import Holder, MinuteCount, SettingsChange, Storage
from tests.ageing import ago
from tests.cli.conftest import Command
from tests.commands import run_to_end
from tests.storage.samples import execute


def register(storage: Storage, name: str, process: ProcessIdentity | None = None, **more: object) -> None:
    """Register a worker of this very process, or of another."""
    values = {"handlers": ("count",), "log_path": f"/logs/{name}.log", **more}
    storage.registry.register(
        WorkerRegistration(name, f"{name}-1", "default", process or identify(), 5, 20, **values),  # type: ignore[arg-type]
        processes.is_dead,
    )


def dead() -> ProcessIdentity:
    """Return the identity of a process of this host that is certainly gone."""
    mine = identify()
    return ProcessIdentity(mine.host, mine.boot_id, mine.pid_namespace, mine.pid, 1)


def target(storage: Storage, workers: int) -> None:
    """Store a target for the pool `default`."""
    change = SettingsChange(policy="fixed", settings={"target_workers": workers})
    held = storage.control.begin_pass("default", Holder("test", identify()), change, 30, processes.is_dead)
    storage.control.end_pass(held)


def test_workers_are_listed_with_their_logs(fleet: Command, database: Storage) -> None:
    """`workers` names state, beat, process and log file of each; JSON has the view's columns."""
    register(database, "b")
    register(database, "a", capabilities={"gpu": 1})
    lines = fleet("workers").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["a", "default", "ready"], ["b", "default", "ready"]]
    assert lines[1].endswith("/logs/a.log")
    rows = fleet("workers", "--json").document
    (view, *_) = database.control.view("fleet_workers")
    assert rows[0].keys() == {name.removesuffix("_json") for name in view}
    assert (rows[0]["capabilities"], rows[0]["handlers"], rows[0]["pid"]) == ({"gpu": 1}, ["count"], identify().pid)


def test_killed_worker_shows_dead_at_once(fleet: Command, database: Storage) -> None:
    """A worker whose process is certainly gone is dead before its lease is over, and no status calls it live (MO01)."""
    register(database, "gone", dead())
    register(database, "here")
    states = {row["worker_id"]: row["state"] for row in fleet("workers", "--json").document}
    assert states == {"gone": "dead", "here": "ready"}
    status = fleet("status", "--json")
    assert (status.code, status.document["workers"]["ready"], status.document["workers"]["dead"]) == (0, 1, 1)
    assert "worker gone is dead" in status.document["notes"][0]


def test_workers_show_what_they_use(fleet: Command, database: Storage) -> None:
    """`workers` and `worker show` tell CPU, memory and for how long the present task is executed, as of the last beat;
    what somebody has broken in a row is left out."""
    register(database, "w")
    database.queue.enqueue([NewTask("count")])
    lanes = tuple((lane.lane_id, 1, 0) for lane in database.queue.lanes(0))
    assert database.queue.claim(Claimant("w", "w-1", 20), lanes, 1).tasks
    metrics = {"at": "2026-01-01T00:01:05.000Z", "task_since": "2026-01-01T00:00:00.000Z"}
    use = {"cpu_percent": 97.5, "rss_mb": 120.5}
    database.registry.beat([Beat("w", "w-1", ((1, 1),), 1, metadata={**metrics, **use})])
    header, line = fleet("workers").out.splitlines()
    assert header.split()[4:8] == ["TASK", "FOR", "CPU", "RSS"]
    assert line.split()[4:10] == ["1", "1m05s", "98", "%", "120", "MiB"]
    assert fleet("workers", "--json").document[0]["metadata"]["cpu_percent"] == 97.5
    shown = fleet("worker", "show", "w").out
    assert re.search(r"executing for +1m05s\nCPU +98 %\nresident memory +120 MiB", shown)
    database.registry.beat([Beat("w", "w-1", ((1, 1),), 1, metadata={"at": 7, "cpu_percent": "x", "rss_mb": -1})])
    assert fleet("workers").out.splitlines()[1].split()[4:8] == ["1", "-", "-", "-"]
    execute(database, "UPDATE worker_registry SET metadata_json = '[]'")
    assert fleet("workers").out.splitlines()[1].split()[4:8] == ["1", "-", "-", "-"]
    database.registry.end("w", "w-1", reason="drained")
    assert fleet("workers", "--all").out.splitlines()[1].split()[4:8] == ["-", "-", "-", "-"]


def test_ended_workers_are_shown_when_asked(fleet: Command, database: Storage) -> None:
    """Ended workers are left out unless `--all` is given."""
    register(database, "w")
    database.registry.end("w", "w-1", reason="drained")
    assert fleet("workers", "--json").document == []
    assert fleet("workers").out == "no workers\n"
    assert fleet("workers", "--all", "--json").document[0]["state"] == "terminated"


def test_groups_tell_why_one_failed(fleet: Command, database: Storage) -> None:
    """`groups` shows each group with its reason, newest first."""
    for name in ("g1", "g2"):
        database.control.add_group(NewGroup(name, "default", 2, f"token-{name}", identify(), 20, {}))
    database.control.fail_group("g2", error="ModuleNotFoundError: No module named 'jobs'", exit_code=2)
    rows = {row["group_id"]: row for row in fleet("groups", "--json").document}
    assert (rows["g1"]["status"], rows["g1"]["target_size"]) == ("running", 2)
    assert (rows["g2"]["status"], rows["g2"]["exit_code"]) == ("failed", 2)
    assert "ModuleNotFoundError: No module named 'jobs'" in fleet("groups").out


def test_a_killed_group_is_lost_at_once(fleet: Command, database: Storage) -> None:
    """`groups` and `status` call a group lost whose supervisor is certainly gone, and the fleet unhealthy, until
    maintenance has written it off."""
    database.control.add_group(NewGroup("g", "default", 1, "t", dead(), 20, {}))
    database.control.add_group(NewGroup("h", "default", 1, "u", identify(), 20, {}))
    rows = {row["group_id"]: (row["status"], row["state"]) for row in fleet("groups", "--json").document}
    assert rows == {"g": ("running", "lost"), "h": ("running", "running")}
    assert re.search("^g .* lost ", fleet("groups").out, re.MULTILINE)
    seen = fleet("status", "--json")
    assert (seen.code, seen.document["groups"]["lost"], seen.document["groups"]["running"]) == (1, 1, 1)
    database.control.expire(None, is_dead)
    assert fleet("status").code == 0


def test_handlers_tell_who_offers_them(fleet: Command, database: Storage) -> None:
    """`handlers` lists built-in and registered ones with their defaults and the number of live workers."""
    register(database, "w")
    database.queue.declare_handlers([HandlerDefaults("count", "q", {"gpu": 1}, 5, 30.0, None, "(path)")])
    rows = {row["name"]: row for row in fleet("handlers", "--json").document}
    assert {"fleet.noop", "fleet.echo", "fleet.sleep", "fleet.fail", "count"} <= rows.keys()
    count = rows["count"]
    assert (count["queue"], count["requires"], count["max_attempts"], count["workers"]) == ("q", {"gpu": 1}, 5, 1)
    assert "count" in fleet("handlers").out


def test_status_of_an_empty_fleet(fleet: Command, database: Storage) -> None:
    """Nothing to do and nobody there is healthy and exits 0 (MO03)."""
    done = fleet("status")
    assert done.code == 0
    assert done.out.splitlines()[0].endswith(": healthy")


def test_status_with_a_backlog_and_nobody(fleet: Command, database: Storage) -> None:
    """Waiting tasks without a worker exit 1 and say why nothing runs (MO03, SC23)."""
    database.queue.enqueue([NewTask("count")] * 2)
    done = fleet("status")
    assert done.code == 1
    assert "problem: 2 tasks wait, no worker is live and no pool says how many there should be" in done.out
    document = fleet("status", "--json").document
    assert (document["healthy"], document["tasks"]["pending"]) == (False, 2)
    assert document["oldest_waiting_seconds"] >= 0
    assert document["handlers"][0]["offered_by"] == []


def test_status_of_a_pool(fleet: Command, database: Storage) -> None:
    """A pool's line has its policy, what it asks for and what it has; scaled to zero is healthy."""
    database.queue.enqueue([NewTask("count")])
    target(database, 3)
    assert "pool     default: policy fixed wants 3, has 0" in fleet("status").out
    target(database, 0)
    done = fleet("status")
    assert done.code == 0
    assert "note: 1 task waits: nothing will run them while every pool is scaled to 0" in done.out


def test_status_counts_finished_tasks_when_asked(fleet: Command, database: Storage) -> None:
    """Finished tasks are counted with `--all` only: counting millions takes time (MO02)."""
    database.queue.enqueue([NewTask("count")])
    assert "done" not in fleet("status", "--json").document["tasks"]
    assert fleet("status", "--all", "--json").document["tasks"]["pending"] == 1


def test_task_that_no_live_worker_offers(fleet: Command, database: Storage) -> None:
    """A task that no live worker takes is listed as such, and workers stay healthy (MO05)."""
    register(database, "w")
    database.queue.enqueue([NewTask("typo"), NewTask("count")])
    done = fleet("status")
    assert done.code == 0
    assert "note: typo in queue default: 1 task waits and no worker offers it" in done.out
    assert "warning: task 'typo': no worker offers it" in fleet("enqueue", "typo").err
    assert fleet("enqueue", "count").err == ""


def test_status_tells_finished_tasks_by_statistics(fleet: Command, database: Storage) -> None:
    """What finished is told over ten minutes and a day from the minutes' counts, and named as about (MO02)."""
    database.control.add_minutes([MinuteCount("default", "count", done=3, failed=1, busy_seconds=1.0, max_seconds=0.5)])
    for minutes, done in ((60, 10), (25 * 60, 99)):
        execute(
            database,
            """INSERT INTO work_minute (minute, queue, task, done, failed, busy_seconds, max_seconds)
            VALUES (:minute, 'default', 'count', :done, 0, 1, 1)""",
            minute=f"{ago(60 * minutes)[:17]}00.000Z",
            done=done,
        )
    assert "finished about 3 done, 1 failed in 10 minutes, 13 done, 1 failed in 24 hours" in fleet("status").out
    document = fleet("status", "--json").document
    assert document["finished_10m"] == {"done": 3, "failed": 1}
    assert document["finished_24h"] == {"done": 13, "failed": 1}


def test_status_of_paused_and_limited_work(fleet: Command, database: Storage) -> None:
    """Paused queues and schedules, and tasks that a limit holds back, are told; they are no outage (MO03)."""
    database.rules.pause("default")
    database.rules.set_limit(Limit("key", max_running=1))
    database.queue.enqueue([NewTask("count", concurrency_key="key")] * 3)
    database.schedules.add(Schedule("nightly", "count", every_seconds=3_600.0))
    database.schedules.add(Schedule("hourly", "count", every_seconds=3_600.0))
    database.schedules.pause("nightly", True)
    done = fleet("status")
    assert done.code == 0
    assert "note: queue default is paused: 1 task waits" in done.out
    assert "note: 2 tasks are held back by limits" in done.out
    assert "note: schedule nightly is paused" in done.out
    document = fleet("status", "--json").document
    assert (document["paused"], document["held_by_limits"]) == ({"default": None}, 2)
    assert document["paused_schedules"] == ["nightly"]


def test_settings_that_somebody_broke_are_named(fleet: Command, database: Storage) -> None:
    """A target that is no number is a problem with its pool and value, in status and at the scaler."""
    target(database, 1)
    execute(database, """UPDATE scheduler SET settings_json = '{"target_workers":"x"}'""")
    done = fleet("status")
    assert done.code == 1
    assert "problem: pool default: its setting target_workers is 'x'" in done.out
    scaler = run_to_end([sys.executable, "-m", "fleet.cli.scaler"])
    scaler.refused(2, "pool default: its setting target_workers is 'x'", "--target-workers")


@pytest.mark.parametrize("settings", ["[]", "{}", '{"other": 1}', "7"])
def test_a_target_that_somebody_removed_is_named(fleet: Command, database: Storage, settings: str) -> None:
    """Settings without a target are the same problem in status and at the scaler, which changes nothing."""
    target(database, 1)
    execute(database, "UPDATE scheduler SET settings_json = :settings", settings=settings)
    problem = "pool default: its setting target_workers is missing: set it with fleet-scaler --target-workers N"
    done = fleet("status")
    assert (done.code, f"problem: {problem}" in done.out) == (1, True)
    scaler = [sys.executable, "-m", "fleet.cli.scaler"]
    for arguments in ([], ["--dry-run"], ["--min-workers", "1"]):
        run_to_end([*scaler, *arguments]).refused(2, problem)
    [row] = execute(database, "SELECT min_workers, lease_holder_json FROM scheduler")
    assert row == {"min_workers": 0, "lease_holder_json": None}
    assert run_to_end([*scaler, "--target-workers", "0"]).code == 0
    assert fleet("status").code == 0


@pytest.mark.sqlite_only("writes what a server's columns cannot hold")
def test_names_that_are_no_text_are_shown(fleet: Command, database: Storage) -> None:
    """A pool and a queue whose names somebody wrote as blobs spoil neither the status nor the lists."""
    target(database, 1)
    register(database, "w")
    database.queue.enqueue([NewTask("count")])
    execute(database, "UPDATE scheduler SET pool = x'ff00'")
    execute(database, "UPDATE claim_lane SET queue = x'ff00'")
    execute(database, "UPDATE worker_registry SET pool = x'ff00'")
    for command in (("status",), ("status", "--json"), ("workers",), ("workers", "--json")):
        done = fleet(*command)
        assert done.code in (0, 1)
        assert "Traceback" not in done.err


def test_workers_whose_beats_wait_are_late_and_not_dead(fleet: Command, database: Storage) -> None:
    """While somebody's lock outlasts the lease, workers whose processes live here are late, others dead (MO01)."""
    register(database, "here")
    register(database, "elsewhere", ProcessIdentity(host="elsewhere", boot_id="b", pid_namespace="n", pid=1))
    execute(
        database,
        "UPDATE worker_registry SET last_heartbeat = :beat, lease_expires_at = :lease",
        beat=ago(30),
        lease=ago(10),
    )
    with database.transaction():
        workers = fleet("status", "--json").document["workers"]
    assert (workers["late"], workers["dead"]) == (1, 1)
    late = re.search(r"worker here is late: its last beat was (\d+) s ago, and its process lives", fleet("status").out)
    # As many as have passed since: the two commands take their time.
    assert late is not None
    assert int(late[1]) >= 30


def test_version_and_help(process: Command) -> None:
    """`fleet --version` and `fleet` without arguments print on stdout and exit 0."""
    assert process("--version").out.startswith("fleet ")
    done = process()
    assert (done.code, done.err) == (0, "")
    assert "enqueue" in done.out


def test_unknown_command(fleet: Command) -> None:
    """An unknown command or group command is one line and exit code 2."""
    fleet("frobnicate").refused(2, "no such command 'frobnicate'", "fleet --help")
    fleet("db").refused(2, "missing command", "fleet db --help")
