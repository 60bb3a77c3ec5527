"""Writes that wait, and processes that stand still or are broken: who goes on, who is ended, and who is charged."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.processes import procfs
from tests.processes.harness import LEASE, Site
from tests.processes.stranger import write_lock

JOBS = "--tasks=tests.faults.jobs"
BEATEN = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > started_at"
ENDED_WITHIN = 4 * LEASE + 5

_NO_DEATHS = """
CREATE TRIGGER test_full BEFORE UPDATE OF status ON worker_registry WHEN new.status = 'terminated'
BEGIN SELECT json_extract('[', '$'); END"""
_NO_DEATHS_ON_A_SERVER = """
CREATE FUNCTION test_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'malformed JSON' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER test_full BEFORE UPDATE OF status ON worker_registry
    FOR EACH ROW WHEN (new.status = 'terminated') EXECUTE FUNCTION test_full()"""


@pytest.mark.sqlite_only(
    "on a server a lease that cannot be renewed is over: slow writes are tolerated with a file alone"
)
def test_a_strangers_lock_of_three_leases_ends_nobody(site: Site) -> None:
    """While a stranger keeps the write lock for three leases the executing worker stays; its task, which has one
    attempt, is executed once and done (LK04, DX08)."""
    (task,) = site.enqueue("hold", {"gate": "open"}, max_attempts=1)
    site.worker("--worker-id=first")
    site.wait_executing([task])
    site.wait_until(lambda: site.ledger.value(BEATEN), "a beat is confirmed")
    life = site.workers()
    with write_lock(str(site.database)):
        time.sleep(3 * LEASE + 0.5)
    site.open_gate("open")
    site.wait_finished([task])
    assert site.task(task, "status", "attempt", "interruptions") == ("done", 1, 0), site.log_text()
    site.ledger.check_executed_once([task])
    assert site.workers() == life
    assert "killed worker" not in site.log_text()


def test_what_is_fenced_under_a_lock_is_not_charged(site: Site) -> None:
    """A task whose worker is killed from outside while nothing can be written goes back uncharged, whoever comes next
    under that worker id (LK04, ST13)."""
    (task,) = site.enqueue("hold", {"gate": "open"}, max_attempts=1)
    site.worker("--worker-id=first")
    site.wait_executing([task])
    ((_, pid),) = site.workers().values()
    with write_lock(str(site.database)):
        os.kill(pid, signal.SIGSTOP)
        site.wait_until(lambda: not procfs.is_alive(pid), "the stopped worker is killed", ENDED_WITHIN)
        time.sleep(1.0)
    site.open_gate("open")
    site.wait_finished([task])
    assert site.task(task, "status", "attempt") == ("done", 1)


@pytest.mark.parametrize("point", ["worker.registered", "idle", "worker.claimed"])
def test_a_stopped_worker_is_replaced(site: Site, point: str) -> None:
    """A worker that is stopped while it starts, is idle or claims is killed when its lease is over, and replaced; what
    it had claimed is done by another, uncharged (DX04)."""
    once = site.directory / "once"
    env = {} if point == "idle" else {"FLEET_FAULTS": f"{point}=once:{once}:stop"}
    tasks = site.enqueue("note", max_attempts=1) if point == "worker.claimed" else []
    site.worker("--worker-id=first", env=env)
    if point != "idle":
        site.wait_until(once.exists, "the worker is stopped")
    ((life, pid),) = site.wait_workers(1).values()
    if point == "idle":
        os.kill(pid, signal.SIGSTOP)
    site.wait_until(lambda: not procfs.is_alive(pid), "the stopped worker is killed", ENDED_WITHIN)
    site.wait_until(lambda: site.workers().get("first", (life, 0))[0] != life, "another takes its place")
    tasks = tasks or site.enqueue("note")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)


def test_a_stopped_idle_worker_does_not_outlive_its_group(site: Site) -> None:
    """A group that is told to end ends, though an idle worker of it is stopped (SD09)."""
    worker = site.worker("--worker-id=first")
    ((_, pid),) = site.wait_workers(1).values()
    os.kill(pid, signal.SIGSTOP)
    worker.signal(signal.SIGTERM)
    assert worker.wait(ENDED_WITHIN) == 0
    site.wait_gone()


@pytest.mark.parametrize("handler", ["close_everything", "reopen_everything"])
def test_a_task_that_closes_its_workers_descriptors(site: Site, handler: str) -> None:
    """A task that closes what its worker needs is charged, and the worker is replaced at once (FK05)."""
    (task,) = site.enqueue(handler, max_attempts=1)
    site.worker(JOBS, "--worker-id=first")
    site.wait_until(lambda: site.status(task) == "failed", "the task is charged", 2 * LEASE)
    assert site.task(task, "error_kind") == ("exited",)
    (after,) = site.enqueue("fleet.noop")
    site.wait_finished([after])


def test_a_timeout_that_the_enqueuer_did_not_know(site: Site) -> None:
    """A task that was enqueued before its handler was known anywhere has the handler's timeout all the same (ST09)."""
    (task,) = site.enqueue("short_of_time", {"gate": "never"}, max_attempts=1)
    assert site.task(task, "timeout_seconds") == (None,)
    site.worker(JOBS)
    site.wait_finished([task])
    assert site.task(task, "error_kind") == ("timeout",)


@pytest.mark.parametrize(
    "statement", ["raise KeyboardInterrupt('no')", "raise type('Odd', (BaseException,), {})('no')"]
)
def test_a_module_that_raises_what_ends_programs(site: Site, statement: str) -> None:
    """Whatever a task module raises while it is imported is told in one line (LF07)."""
    (site.home / "odd_module.py").write_text(statement + "\n")
    worker = site.worker("--tasks=odd_module", env={"PYTHONPATH": os.pathsep.join([str(site.home), *sys.path])})
    assert worker.wait() == 2
    assert worker.text.count("\n") == 1
    assert "odd_module.py:1" in worker.text


def test_too_few_descriptors_are_told_in_one_line(site: Site) -> None:
    """A worker that may not open the files that it needs says so in one line (LF07)."""
    arguments = ["-m", "fleet.cli.worker", *site.worker_arguments(processes=4)]
    worker = site.start(
        "-c",
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12));"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
        *arguments,
    )
    assert worker.wait() == 1
    assert worker.text.count("\n") == 1, worker.text
    assert "Too many open files" in worker.text


def test_a_keeper_that_cannot_write_a_death_is_patient(site: Site) -> None:
    """While a death cannot be written the keeper neither spins nor floods the log, and tells of trouble once (DK01)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=first", processes=2)
    site.wait_executing([task])
    site.wait_workers(2)
    site.ledger.write(_NO_DEATHS_ON_A_SERVER if site.is_remote else _NO_DEATHS)
    lives = site.workers()
    (victim,) = {pid for worker, (_, pid) in lives.items() if worker == site.task(task, "worker")[0]}
    procfs.kill(victim)
    beaten = "SELECT min(last_heartbeat) FROM worker_registry WHERE pid <> ?"
    before = site.ledger.value(beaten, victim)
    site.wait_until(lambda: site.ledger.value(beaten, victim) > before, "beats go on for the other")
    time.sleep(3.0)
    assert site.log_text().count("malformed JSON") == 1, site.log_text()
    site.ledger.write("DROP TRIGGER test_full" + (" ON worker_registry" if site.is_remote else ""))
    site.open_gate("open")
    site.wait_finished([task])
    site.wait_until(lambda: "the database answers again" in site.log_text(), "the end of the trouble is told")
