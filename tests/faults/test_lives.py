"""Lives and deaths: of workers with an order in their row, of clients that stop, of launches nobody waits for."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fleet.domain.retry import RetryPolicy
from fleet.process import state
from fleet.scaler.settings import NEW_POOL
from fleet.storage.sql import Runner, Statement
from tests.databases import opened
from tests.faults.commands import python
from tests.processes import procfs
from tests.processes.harness import LEASE, WORKER_OPTIONS, Site
from tests.storage.samples import claim, enqueue_one, nobody, running_task

AT_ONCE = RetryPolicy(wait="fixed", multiplier=0.1, max=0.1)


def test_an_order_to_go_belongs_to_one_life(site: Site) -> None:
    """A worker told to go is killed before it reads that; another life of the same id starts and works (LF09)."""
    worker = site.worker("--worker-id=w1")
    ((life, pid),) = site.wait_workers(1).values()
    keepers = site.keepers()
    for victim in (worker.pid, *keepers, pid):
        os.kill(victim, signal.SIGSTOP)
    site.ledger.write("UPDATE worker_registry SET status = 'terminating', terminating_at = last_heartbeat")
    site.kill_all()
    (task,) = site.enqueue("note")
    site.worker("--worker-id=w1")
    site.wait_finished([task])
    assert site.workers()["w1"][0] != life


def test_a_worker_that_never_comes_to_its_end(site: Site) -> None:
    """A worker told to go whose task never ends is no supply meanwhile, and ends at its drain deadline; the task goes
    back uncharged (SD09)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.scale(1, "--", *WORKER_OPTIONS, "--drain-timeout=2")
    site.wait_executing([task])
    ((old, (_, pid)),) = site.workers().items()
    site.scale(0, wait=None)
    assert site.workers("terminating").keys() == {old}
    site.scale(1, wait=None)
    site.wait_until(lambda: set(site.workers()) and old not in site.workers(), "another worker takes its place")
    site.wait_until(lambda: not procfs.is_alive(pid), "the drain deadline ends the old one")
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "the task runs elsewhere")
    assert site.task(task, "attempt", "interruptions") == (1, 1)
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_done_once([task])


def test_a_stopped_worker_that_was_told_to_go(site: Site) -> None:
    """A worker that is stopped after it was told to go loses its lease; its task runs elsewhere, and a pass with the
    same target has another in its place (SD09, DX04)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.scale(1)
    site.wait_executing([task])
    ((old, (_, pid)),) = site.workers().items()
    os.kill(pid, signal.SIGSTOP)
    site.scale(0, wait=None)
    site.scale(1, wait=None)
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "the task runs elsewhere")
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_done_once([task])
    assert old not in site.workers()


def test_a_process_that_dies_before_it_reports(site: Site) -> None:
    """A worker that dies after its handler returned, before anything is written, leaves no row running: its end is
    recorded by who saw it die, and the task is executed again (FK05, DX20)."""
    once = site.directory / "died-once"
    (task,) = site.enqueue("note")
    worker = site.worker("--until-empty", env={"FLEET_FAULTS": f"worker.executed=once:{once}:kill"})
    assert worker.wait() == 0
    site.ledger.check_done_once([task])
    assert len(site.ledger.executions(task)) == 2
    assert "died of signal 9" in site.log_text()


def test_a_lost_connection_before_the_report(site: Site) -> None:
    """A worker that cannot reach the database with what it executed does not leave the row running (FK05)."""
    once = site.directory / "lost-once"
    (task,) = site.enqueue("note")
    worker = site.worker("--until-empty", env={"FLEET_FAULTS": f"worker.executed=once:{once}:raise"})
    assert worker.wait() == 0
    site.ledger.check_done_once([task])
    assert site.status(task) == "done"


def test_a_task_that_the_kernel_kills(site: Site) -> None:
    """A task whose worker is killed as by the kernel when memory runs out ends after its attempts, with the signal and
    its memory as the reason; three others beside it do not notice (TO03, RT05)."""
    others = site.enqueue("hold", *[{"gate": "open"}] * 3)
    site.worker(processes=4)
    site.wait_executing(others)
    (hog,) = site.enqueue("die", max_attempts=2, retry=AT_ONCE)
    site.wait_finished([hog])
    status, kind, attempt, error = site.task(hog, "status", "error_kind", "attempt", "error")
    assert (status, kind, attempt) == ("failed", "killed", 2)
    assert "SIGKILL" in error
    assert "when memory runs out" in error
    site.open_gate("open")
    site.wait_finished(others)
    site.ledger.check_executed_once(others)


def test_a_timeout_ends_what_ignores_signals(site: Site) -> None:
    """Handlers that ignore SIGTERM and outlive their timeout are killed, more of them than workers: every slot is free
    again, and the rows say why (ST15, ST17)."""
    tasks = site.enqueue("ignore_sigterm", *[{"gate": "never"}] * 6, timeout=0.7, max_attempts=1, retry=AT_ONCE)
    site.worker(processes=2)
    site.wait_finished(tasks)
    assert {site.task(task, "status", "error_kind") for task in tasks} == {("failed", "timeout")}
    more = site.enqueue("note", count=4)
    site.wait_finished(more)
    assert len(site.wait_workers(2)) == 2


def test_a_client_that_stops_changes_nothing(site: Site) -> None:
    """A command that waits for a task is stopped for longer than a lease: the task is unaffected, and the command then
    reads the stored result (ST20)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker()
    site.wait_executing([task])
    client = site.start("-m", "fleet", "task", "wait", str(task), f"--db-path={site.database}")
    site.wait_until(lambda: state(client.pid) == "S", "the client waits")
    client.signal(signal.SIGSTOP)
    expiry = site.ledger.value("SELECT lease_expires_at FROM worker_registry")
    site.open_gate("open")
    site.wait_finished([task])
    site.wait_until(
        lambda: site.ledger.value("SELECT last_heartbeat > ? FROM worker_registry", expiry), "a lease has passed"
    )
    client.signal(signal.SIGCONT)
    assert client.wait() == 0
    site.ledger.check_executed_once([task])


IGNORING = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.argv = sys.argv[1:]; "


def test_a_supervisor_started_with_sigchld_ignored(site: Site) -> None:
    """Started where SIGCHLD is ignored, a supervisor still sees how its workers end (PD07)."""
    (task,) = site.enqueue("leave", max_attempts=1)
    program = IGNORING + "from fleet.cli.worker import run; run()"
    worker = site.start("-c", program, "fleet-worker", "--until-empty", *site.worker_arguments())
    assert worker.wait() == 0
    assert site.task(task, "status", "error_kind") == ("failed", "exited")
    assert "exited with code 7" in site.task(task, "error")[0]


def test_a_scaler_started_with_sigchld_ignored(site: Site) -> None:
    """Started where SIGCHLD is ignored, a scaler still learns the exit code of a launch that failed (PD07)."""
    program = IGNORING + "from fleet.cli.scaler import run; run()"
    options = ("--target-workers=1", "--every=1s", f"--db-path={site.database}", "--", "--tasks=tests.processes.broken")
    scaler = site.start("-c", program, "fleet-scaler", *options)
    failed = "SELECT exit_code, error FROM worker_group WHERE status = 'failed'"
    site.wait_until(lambda: site.ledger.rows(failed), "the launch is found failed")
    exit_code, error = site.ledger.rows(failed)[0]
    assert exit_code == 2
    assert "broken on purpose" in error
    scaler.signal(signal.SIGTERM)
    scaler.wait()


def test_no_zombies_remain(site: Site) -> None:
    """After many workers of a group were killed, their supervisor has collected every one of them (PD02, PD07)."""
    worker = site.worker(processes=4)
    for _ in range(2):
        pids = {pid for _, pid in site.wait_workers(4).values() if procfs.is_alive(pid)}
        for pid in pids:
            procfs.kill(pid)
        site.wait_until(lambda: not procfs.zombies_of(worker.pid), "all are collected")
        site.wait_until(
            lambda old=pids: len(new := {pid for _, pid in site.workers().values()} - old) == 4 and new, "all are new"
        )
    assert procfs.zombies_of(worker.pid) == []


def test_a_pass_that_cannot_read_changes_nothing(site: Site) -> None:
    """When a table is missing, a pass with busy workers prints one error, does not exit with 0, and touches nobody
    (SC16)."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 2)
    site.scale(2)
    site.wait_executing(tasks)
    before = site.workers()
    scaler = ("-m", "fleet.cli.scaler", f"--db-path={site.database}", "--target-workers=0")
    site.ledger.write("ALTER TABLE worker_group RENAME TO hidden")
    broken = python(site, *scaler)
    assert (broken.code, broken.out) == (3, "")
    assert broken.err.startswith("error: ")
    assert "Traceback" not in broken.err
    site.ledger.write("ALTER TABLE hidden RENAME TO worker_group")
    assert site.workers() == before
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)


def test_a_decision_rests_on_one_transaction(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that come, and are claimed, between the reads of a scaler's snapshot are not in it, neither as waiting nor
    as running (SC02)."""
    store, rivals = opened(str(sqlite_path)), opened(str(sqlite_path))
    who, _ = running_task(store)
    enqueue_one(store)
    execute = Runner._execute
    reads: list[Statement] = []

    def disturbed(self: Runner, statement: Statement, values: Mapping[str, Any]) -> Any:
        cursor = execute(self, statement, values)
        reads.append(statement)
        monkeypatch.setattr(Runner, "_execute", execute)
        enqueue_one(rivals)
        claim(rivals, who)
        monkeypatch.setattr(Runner, "_execute", disturbed)
        return cursor

    monkeypatch.setattr(Runner, "_execute", disturbed)
    seen = store.control.snapshot("default", NEW_POOL, "native:here", nobody)
    monkeypatch.undo()
    assert len(reads) > 3
    assert (seen.waiting, seen.running) == (1, 1)
    assert store.control.snapshot("default", NEW_POOL, "native:here", nobody).running == 1 + len(reads)
    store.close()
    rivals.close()


def test_one_process_is_one_worker(site: Site) -> None:
    """A target counts processes, whatever the groups they were launched in: 4 + 2 are 6, and from 6 to 5 one goes,
    after which nothing changes (SC18)."""
    site.scale(4)
    site.scale(6)
    site.scale(5)
    site.wait_workers(5)
    life = site.workers()
    for _ in range(2):
        again = python(site, "-m", "fleet.cli.scaler", f"--db-path={site.database}")
        assert (again.code, again.out) == (0, "")
    assert site.workers() == life


def test_idle_workers_leave_whatever_else_waits(site: Site) -> None:
    """A task that nobody can run keeps no idle worker: told to go, all leave (SC24, SC15)."""
    site.enqueue("of-nobody")
    site.scale(3)
    site.wait_workers(3)
    site.scale(0)
    site.wait_gone()
    assert site.ledger.value("SELECT status FROM work_queue") == "pending"


def test_rows_without_times_are_told_apart(site: Site) -> None:
    """A worker with a claim and no beat since is believed for its lease, which its registration gave it (ST08)."""
    once = site.directory / "registered-once"
    site.worker("--worker-id=slow", f"--lease={3 * LEASE}", env={"FLEET_FAULTS": f"worker.registered=once:{once}:stop"})
    site.wait_until(once.exists, "the worker has registered, and stands still")
    ((started, beaten, expires),) = site.ledger.rows(
        "SELECT started_at, last_heartbeat, lease_expires_at FROM worker_registry"
    )
    assert started <= beaten < expires
    site.scale(0, "--pool=another", wait=None)
    assert site.workers()["slow"]
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError), match=r"(?i)not.null"):
        site.ledger.write("UPDATE worker_registry SET last_heartbeat = NULL")
