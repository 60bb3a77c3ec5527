"""Scalers with real workers: how many there are, who goes, and what is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from fleet.process import state
from tests.processes import procfs
from tests.processes.counts import COUNTS
from tests.processes.harness import ROOT, WORKER_OPTIONS, Site

SCALER = "fleet.cli.scaler"
TARGET = ["--target-workers=3"]
UNIX_SOCKETS = Path("/proc/net/unix")


def settled(site: Site) -> bool:
    """Return whether nothing is ordered that has not been carried out, and all that was launched has come up."""
    open_commands = "SELECT count(*) FROM adapter_command WHERE status IN ('pending', 'taken')"
    booting = "SELECT count(*) FROM worker_group WHERE status IN ('requested', 'launching')"
    wanted = "SELECT coalesce(sum(target_size), 0) FROM worker_group WHERE status = 'running'"
    orders = int(site.ledger.value(open_commands)) + int(site.ledger.value(booting))
    return orders == 0 and len(site.workers()) >= int(site.ledger.value(wanted))


def check_exactly(site: Site, workers: int, groups: int = 1) -> None:
    """Wait until everything ordered is there, and check that it is so many workers, in so many groups, and no more."""
    site.wait_until(lambda: settled(site), "all that was ordered is there")
    assert len(site.workers()) == workers, site.report()
    running = "SELECT count(*), coalesce(sum(target_size), 0) FROM worker_group WHERE status = 'running'"
    assert site.ledger.rows(running) == [(groups, workers)], site.report()
    site.wait_until(
        lambda: len(site.processes()) == workers + 2 * groups, "a supervisor and a keeper for each group, and workers"
    )


def test_pairs_of_scalers_start_each_worker_once(site: Site) -> None:
    """Two scalers that start at the same instant with target 5 and nobody there start exactly 5 workers (SC12)."""
    line = [SCALER, f"--db-path={site.database}", "--target-workers=5", "--", *WORKER_OPTIONS]
    for _ in range(COUNTS.scaler_pairs):
        for scaler in site.at_once(line, line):
            assert scaler.wait() == 0, scaler.text
        check_exactly(site, 5)
        site.scale(0, wait=None)
        site.wait_gone()
        site.wait_until(lambda: not site.workers() and not site.workers("terminating"), "all have deregistered")


def test_a_scaler_that_was_overtaken_writes_nothing(site: Site) -> None:
    """A scaler that is stopped past its lease in the middle of its pass and goes on later launches nobody (SC12)."""
    slow = site.scaler("--target-workers=5", *site.template(), env={"FLEET_FAULTS": "scaler.observed=stop"})
    site.wait_until(lambda: state(slow.pid) == "T", "the scaler has decided and is stopped")
    site.scale(5, wait=None)
    assert site.processes() == [slow.pid], "the lease of a stopped scaler holds"
    site.ledger.write("UPDATE scheduler SET lease_expires_at = '2020-01-01T00:00:00.000Z'")
    site.scale(5)
    os.kill(slow.pid, signal.SIGCONT)
    assert slow.wait() == 0, slow.text
    check_exactly(site, 5)
    site.scale(5)
    check_exactly(site, 5)


def test_a_plan_that_many_apply_at_once_is_carried_out_once(site: Site) -> None:
    """One of them starts its workers; the others are refused, each with exit code 1 and one line (SC12)."""
    plan = site.directory / "plan.json"
    made = site.start("-m", SCALER, "plan", f"--db-path={site.database}", f"--out={plan}", *site.template(TARGET))
    assert made.wait() == 0, made.text
    line = [SCALER, "apply", str(plan), f"--db-path={site.database}"]
    ended = sorted((scaler.wait(), scaler.text) for scaler in site.at_once(*[line] * 4))
    assert [code for code, _ in ended] == [0, 1, 1, 1], ended
    assert all(text.startswith("error: pool ") and text.count("\n") == 1 for _, text in ended[1:]), ended
    check_exactly(site, 3)


def test_a_plan_whose_apply_was_killed_is_followed_by_the_next_pass(site: Site) -> None:
    """What was written is all of it: the next pass starts the workers that the plan ordered, once (SC12)."""
    plan = site.directory / "plan.json"
    made = site.start("-m", SCALER, "plan", f"--db-path={site.database}", f"--out={plan}", *site.template(TARGET))
    assert made.wait() == 0, made.text
    faults = {"FLEET_FAULTS": "scaler.applied=kill"}
    killed = site.start("-m", SCALER, "apply", str(plan), f"--db-path={site.database}", env=faults)
    assert killed.wait() == -signal.SIGKILL, killed.text
    assert site.ledger.rows("SELECT status, target_size FROM worker_group") == [("requested", 3)]
    next_pass = site.scaler(*site.what_may_run())
    assert next_pass.wait() == 0, next_pass.text
    check_exactly(site, 3)


def test_two_pools_leave_each_other_alone(site: Site) -> None:
    """Two pools in one database, each with its own cron line, target and module: passes of both at the same instant
    leave exactly the workers of each, and scaling one to zero does not touch the other."""
    elsewhere = ["--tasks=tests.processes.others", *WORKER_OPTIONS[1:]]
    lines = [
        [SCALER, f"--db-path={site.database}", f"--pool={pool}", f"--target-workers={target}", "--", *options]
        for pool, target, options in (("here", 3, WORKER_OPTIONS), ("there", 2, elsewhere))
    ]
    for _ in range(3):
        for scaler in site.at_once(*lines, *lines):
            assert scaler.wait() == 0, scaler.text
        check_exactly(site, 5, groups=2)
    here, there = site.workers(pool="here"), site.workers(pool="there")
    assert (len(here), len(there)) == (3, 2)
    tasks = [*site.enqueue("note", count=20), *site.enqueue("elsewhere", count=20)]
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    assert executors(site, "note") <= set(here)
    assert executors(site, "elsewhere") <= set(there)
    site.scale(0, "--pool=here")
    site.wait_until(lambda: not site.workers(pool="here"), "the pool is empty")
    assert site.workers(pool="there") == there


def executors(site: Site, task: str) -> set[str]:
    """Return the ids of workers that executed tasks of a handler."""
    return {worker for (worker,) in site.ledger.rows("SELECT DISTINCT worker FROM work_queue WHERE task = ?", task)}


def test_scaling_down_interrupts_nobody(site: Site) -> None:
    """From 5 to 1 with all busy: each finishes its task, none is executed twice, none of those that go is replaced or
    begins another task (SD04)."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 5)
    site.scale(5)
    site.wait_executing(tasks)
    before = site.workers()
    behind = site.enqueue("note", count=10)
    site.scale(1, wait=None)
    leaving = site.workers("terminating")
    assert len(leaving) == 4
    assert {site.status(task) for task in tasks} == {"running"}
    site.open_gate("open")
    site.wait_finished([*tasks, *behind])
    site.ledger.check_executed_once([*tasks, *behind])
    check_exactly(site, 1)
    assert site.workers().items() <= before.items()
    assert not executors(site, "note") & set(leaving)
    assert site.ledger.value("SELECT count(DISTINCT incarnation) FROM worker_registry") == 5


def test_one_that_is_busy_keeps_nobody_from_leaving(site: Site) -> None:
    """At target 0 the idle ones leave at once, and the busy one after its task (SC13, SD04)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.scale(4)
    site.wait_executing([task])
    (busy,) = executors(site, "hold")
    site.scale(0, wait=None)
    site.wait_until(lambda: set(site.workers("terminating")) == {busy}, "the idle ones have left")
    assert len(site.processes()) == 3
    site.open_gate("open")
    site.wait_gone()
    site.ledger.check_executed_once([task])


def test_nothing_remains_after_scaling_to_zero(site: Site) -> None:
    """At zero there is no process, lock, socket or temporary file: the database, its side files and logs stay
    (SD04)."""
    tasks = site.enqueue("note", count=20)
    site.scale(3)
    site.wait_finished(tasks)
    site.scale(0, wait=None)
    site.wait_gone()
    assert {path.name for path in site.home.iterdir()} <= {
        "fleet.db",
        "fleet.db-wal",
        "fleet.db-shm",
        "fleet.db-lock",
        "fleet-logs",
    }
    assert {path.suffix for path in site.logs.iterdir()} == {".log"}
    assert list((site.directory / "tmp").iterdir()) == []
    assert not procfs.locked_inodes() & {path.stat().st_ino for path in site.home.iterdir()}
    assert not [name for name in bound_sockets() if str(site.directory) in name]
    assert site.ledger.rows("SELECT DISTINCT status FROM worker_registry") == [("terminated",)]
    assert site.ledger.rows("SELECT status, exit_code, error FROM worker_group") == [("stopped", 0, None)]


def bound_sockets() -> list[str]:
    """Return the names of unix sockets of the host."""
    return [fields[7] for fields in map(str.split, UNIX_SOCKETS.read_text().splitlines()) if len(fields) > 7]


def test_workers_survive_the_scaler_and_its_terminal(site: Site) -> None:
    """Launched workers keep no descriptor of the scaler, and live on when its terminal hangs up."""
    with open(site.directory / "ours", "w") as ours:
        arguments = ["-m", SCALER, f"--db-path={site.database}", "--target-workers=2", *site.template()]
        terminal = site.terminal(*arguments, inherited=[ours.fileno()])
        assert terminal.process.wait(40) == 0, terminal.text()
    site.wait_workers(2)
    open_files = {link for pid in site.processes() for link in procfs.descriptors(pid)}
    assert not [link for link in open_files if link.endswith("/ours") or "/dev/pts" in link or "/dev/tty" in link]
    (log,) = site.ledger.rows("SELECT DISTINCT log_path FROM worker_registry")
    assert log[0] in open_files
    before = site.workers()
    terminal.hang_up()
    tasks = site.enqueue("note", count=5)
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    assert site.workers() == before


@pytest.mark.sqlite_only("on a server a scaler's own command line says what runs, and where")
def test_cron_has_next_to_no_environment(site: Site) -> None:
    """Under `env -i` the next cron line starts workers with the interpreter, directory and options that are stored
    (CR03)."""
    site.scale(0, wait=None)
    needed = {name: site.environment()[name] for name in site.environment() if name.startswith(("TEST_", "FLEET_"))}
    line = f"cd / && exec {sys.executable} -m {SCALER} --db-path={site.database} --target-workers=1"
    cron = site.start("-c", _RUN_BARE, line, *[f"{name}={value}" for name, value in needed.items()])
    assert cron.wait() == 0, cron.text
    assert cron.text.count("\n") == 1
    tasks = site.enqueue("note")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    ((pid,),) = site.ledger.rows("SELECT pid FROM worker_group WHERE status = 'running'")
    assert os.readlink(f"/proc/{pid}/cwd") == str(ROOT)


_RUN_BARE = "import os, sys; os.execv('/usr/bin/env', ['env', '-i', *sys.argv[2:], '/bin/sh', '-c', sys.argv[1]])"


def test_a_module_that_does_not_import_is_named_on_its_group(site: Site) -> None:
    """A launch that fails leaves its reason, exception and log, on the group's row; passes back off (LF07, LF08)."""
    template = ["--", "--tasks=tests.processes.broken"]
    scaler = site.scaler("--target-workers=1", "--wait=3", *template)
    assert scaler.wait() == 4
    assert "this module is broken on purpose" in scaler.text
    rows = site.ledger.rows("SELECT status, exit_code, error, log_path FROM worker_group ORDER BY created_at")
    status, exit_code, error, log = rows[0]
    assert (status, exit_code) == ("failed", 2)
    assert "RuntimeError: this module is broken on purpose (tests/processes/broken.py:3)" in error
    assert "this module is broken on purpose" in Path(log).read_text()
    # A launch takes about half a second: without a growing pause there would be six in the three seconds.
    assert len(rows) <= 4
    site.wait_gone()
