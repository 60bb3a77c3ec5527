"""What supervisor and keeper do for their workers, and what becomes of a group without one of them."""

from __future__ import annotations

import os
import signal

import pytest

from fleet.domain.retry import RetryPolicy
from fleet.worker.roster import restart_delay
from tests.faults.commands import python
from tests.processes import procfs
from tests.processes.harness import LEASE, Site

AT_ONCE = RetryPolicy(wait="fixed", multiplier=0.1, max=0.1)


def test_the_workers_of_a_killed_supervisor_finish_and_go(site: Site) -> None:
    """Busy workers whose supervisor was killed beat for themselves, finish, and end; nobody else takes their tasks, and
    a scaler pass with the same target replaces them (PD08, SC12)."""
    tasks = site.enqueue("hold", {"gate": "open"}, {"gate": "open"})
    site.scale(2)
    site.wait_executing(tasks)
    (supervisor,) = site.supervisors()
    old = site.workers()
    procfs.kill(supervisor)
    site.wait_until(lambda: len(site.workers("terminating")) == 2, "the orphans are no supply any more")
    site.scale(2)
    beat = "SELECT count(*) FROM worker_registry WHERE status = 'terminating' AND last_heartbeat > ?"
    since = site.ledger.value("SELECT max(lease_expires_at) FROM worker_registry WHERE status = 'terminating'")
    site.wait_until(lambda: site.ledger.value(beat, since) == 2, "the orphans have beaten for longer than a lease")
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    site.wait_until(lambda: not {pid for _, pid in old.values()} & set(site.processes()), "the orphans have ended")
    assert len(site.workers()) == 2
    assert not set(site.workers()) & set(old)


def test_a_group_ends_with_its_supervisor(site: Site) -> None:
    """A group whose supervisor was killed is marked failed before its keeper leaves: nobody else may be there to do it,
    and no scaler counts on it (PD08)."""
    site.worker()
    site.wait_workers(1)
    (supervisor,) = site.supervisors()
    procfs.kill(supervisor)
    site.wait_gone()
    ((status, error, stopped),) = site.ledger.rows("SELECT status, error, stopped_at FROM worker_group")
    assert (status, stopped is None) == ("failed", False)
    assert error.startswith(f"the supervisor (pid {supervisor} on ")
    shown = python(site, "-m", "fleet", "status", f"--db-path={site.database}")
    assert (shown.code, shown.out.count("groups   1 failed")) == (0, 1)
    assert "note: the last group of pool default failed: the supervisor" in shown.out


def test_a_group_that_was_killed_as_a_whole_is_lost(site: Site) -> None:
    """Where every process of a group was killed at once, status calls it lost and the fleet unhealthy, and maintenance
    of whoever comes next ends it (PD08)."""
    site.worker()
    site.wait_workers(1)
    site.kill_all()
    shown = python(site, "-m", "fleet", "status", f"--db-path={site.database}")
    assert (shown.code, shown.out.count("groups   1 lost")) == (1, 1)
    assert "any worker or fleet-scaler pass does that" in shown.out
    site.worker()
    failed = "SELECT count(*) FROM worker_group WHERE status = 'failed'"
    site.wait_until(lambda: site.ledger.value(failed) == 1, "the lost group is written off")
    shown = python(site, "-m", "fleet", "status", f"--db-path={site.database}")
    assert (shown.code, shown.out.count("groups   1 running, 1 failed")) == (0, 1)


def test_nobody_notices_a_killed_keeper_but_the_log(site: Site) -> None:
    """A killed keeper is replaced; tasks go on and workers stay the same (LK10)."""
    running, waiting = site.enqueue("hold", {"gate": "first"}, {"gate": "second"})
    site.worker("--worker-id=only")
    site.wait_executing([running])
    life = site.workers()
    for _ in range(2):
        (keeper,) = site.wait_until(site.keepers, "there is a keeper")
        procfs.kill(keeper)
        wait_for_another(site, keeper)
    since = site.ledger.value("SELECT max(lease_expires_at) FROM worker_registry")
    fresh = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(fresh, since), "beats have gone on for longer than a lease")
    site.open_gate("first")
    site.open_gate("second")
    site.wait_finished([running, waiting])
    site.ledger.check_executed_once([running, waiting])
    assert site.workers() == life
    assert "starting another" in site.log_text()


def test_keepers_that_die_faster_than_a_lease_keep_their_group(site: Site) -> None:
    """However many keepers die in a row, the next one beats before the group's lease is over, so that nobody takes the
    group for lost (LK10)."""
    site.worker()
    site.wait_workers(1)
    beaten, ends = "SELECT last_heartbeat FROM worker_group", "SELECT lease_expires_at FROM worker_group"
    deaths = next(count for count in range(1, 20) if restart_delay(count - 1) > 1.5 * LEASE)
    site.wait_until(site.keepers, "there is a keeper")
    for death in range(1, deaths + 1):
        (keeper,) = site.keepers()
        due = site.ledger.value(ends)
        procfs.kill(keeper)
        wait_for_another(site, keeper)
        site.wait_until(lambda due=due: site.ledger.value(ends) != due, "the next keeper has beaten")
        assert site.ledger.value(beaten) < due, f"after {death} deaths the group had no beat for a lease"
    assert site.log_text().count("starting another") == deaths


def wait_for_another(site: Site, keeper: int) -> None:
    """Wait until the group has a keeper that is not this one."""
    site.wait_until(lambda: (found := site.keepers()) and keeper not in found, "another keeper is there")


def test_a_keeper_without_a_pulse_is_replaced(site: Site) -> None:
    """A keeper that is stopped is killed and replaced before its workers' lease ends (LK10)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--lease=6")
    site.wait_executing([task])
    life = site.workers()
    (keeper,) = site.wait_until(site.keepers, "there is a keeper")
    os.kill(keeper, signal.SIGSTOP)
    wait_for_another(site, keeper)
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    assert site.workers() == life


def test_a_killed_worker_is_replaced(site: Site) -> None:
    """One of four workers is killed: its place is filled, and its task executed again, at once (ST02)."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 4)
    site.worker("--worker-id=w", processes=4)
    site.wait_executing(tasks)
    before = site.workers()
    incarnation, pid = before["w-2"]
    procfs.kill(pid)
    site.wait_until(lambda: site.workers().get("w-2", (incarnation,))[0] != incarnation, "the worker is replaced")
    site.open_gate("open")
    site.wait_finished(tasks)
    site.ledger.check_done_once(tasks)
    assert sorted(execution.attempt for execution in site.ledger.executions()) == [1, 1, 1, 1, 2]
    assert {name: life for name, life in site.workers().items() if name != "w-2"} == {
        name: life for name, life in before.items() if name != "w-2"
    }


@pytest.mark.parametrize("handler", ["stuck_in_c", "stuck_in_await"])
def test_a_timeout_ends_whatever_runs(site: Site, handler: str) -> None:
    """A handler past its timeout is ended, in C code and in an await, and tried again until its attempts are spent."""
    (task,) = site.enqueue(handler, timeout=0.5, max_attempts=2, retry=AT_ONCE)
    (after,) = site.enqueue("note")
    site.worker()
    site.wait_finished([task, after])
    status, kind, attempt, error = site.task(task, "status", "error_kind", "attempt", "error")
    assert (status, kind, attempt) == ("failed", "timeout", 2)
    assert "0.5" in error
    assert [line.attempt for line in site.ledger.executions(task)] == [1, 2]
    site.ledger.check_executed_once([after])


@pytest.mark.parametrize(("handler", "kind", "words"), [("die", "killed", "SIGKILL"), ("leave", "exited", "code 7")])
def test_a_crash_is_charged_to_the_task_that_ran(site: Site, handler: str, kind: str, words: str) -> None:
    """Of a batch whose second task brings its worker down that one alone is charged, at every attempt (RT04)."""
    before = site.enqueue("note")
    (guilty,) = site.enqueue(handler, max_attempts=2, retry=AT_ONCE)
    behind = site.enqueue("note", count=3)
    site.worker("--prefetch=5", processes=1)
    site.wait_finished([*before, guilty, *behind])
    status, error_kind, attempt, error = site.task(guilty, "status", "error_kind", "attempt", "error")
    assert (status, error_kind, attempt) == ("failed", kind, 2)
    assert words in error
    site.ledger.check_done_once([*before, *behind])
    assert {site.task(task, "attempt") for task in (*before, *behind)} == {(1,)}


def test_what_ends_a_program_does_not_end_a_worker(site: Site) -> None:
    """A handler that calls sys.exit has failed; its worker lives on."""
    (task,) = site.enqueue("exit_politely", max_attempts=1)
    (after,) = site.enqueue("note")
    site.worker()
    site.wait_finished([task, after])
    assert site.task(task, "status", "error_kind") == ("failed", "SystemExit")
    assert len({line.process for line in site.ledger.executions()}) == 1


def test_a_worker_with_a_zombie_child_is_alive(site: Site) -> None:
    """A task that leaves a zombie does not make its worker dead; the zombie goes with the task (PD09, PD02)."""
    (task,) = site.enqueue("leave_zombie", {"gate": "open"})
    site.worker()
    site.wait_executing([task])
    ((_, pid),) = life = list(site.workers().values())
    site.wait_until(lambda: procfs.zombies_of(pid), "the child has ended")
    since = site.ledger.value("SELECT max(lease_expires_at) FROM worker_registry")
    fresh = "SELECT count(*) FROM worker_registry WHERE last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(fresh, since), "the worker has beaten for longer than a lease", 4 * LEASE)
    site.open_gate("open")
    site.wait_finished([task])
    site.wait_until(lambda: not procfs.zombies_of(pid), "the zombie is collected")
    site.ledger.check_executed_once([task])
    assert list(site.workers().values()) == life


def test_what_a_task_leaves_behind_ends_with_its_worker(site: Site) -> None:
    """A child that a task left running is gone when its worker has ended (TO02)."""
    tasks = site.enqueue("leave_child")
    worker = site.worker("--until-empty")
    assert worker.wait() == 0
    site.ledger.check_executed_once(tasks)
    site.wait_gone()


@pytest.mark.parametrize("handler", ["fork_and_return", "fork_and_raise"])
def test_a_forked_child_never_becomes_a_second_worker(site: Site, handler: str) -> None:
    """A child that leaves a handler touches neither queue nor database of the worker that forked it (FK01)."""
    tasks = site.enqueue(handler, count=20)
    worker = site.worker("--until-empty", processes=2)
    assert worker.wait() == 0, worker.text
    site.ledger.check_executed_once(tasks)
    site.ledger.check_sound()
    site.wait_gone()


def test_workers_are_recycled(site: Site) -> None:
    """After --max-tasks a worker is replaced under the same id, and nothing is lost or charged."""
    tasks = site.enqueue("note", count=6)
    worker = site.worker("--max-tasks=2", "--worker-id=w", "--until-empty")
    assert worker.wait() == 0
    site.ledger.check_executed_once(tasks)
    assert [len([e for e in site.ledger.executions() if e.pid == pid]) for pid in pids(site)] == [2, 2, 2]


def pids(site: Site) -> list[int]:
    """Return who executed, in the order of appearance."""
    return list(dict.fromkeys(execution.pid for execution in site.ledger.executions()))


def test_modules_that_start_threads_are_spawned(site: Site) -> None:
    """Where importing the task modules starts threads nobody forks: it is said in one line, and everything works, the
    keeper's and a worker's replacement included (FK03)."""
    tasks = site.enqueue("logging_note", count=200)
    (guilty,) = site.enqueue("die", max_attempts=1)
    worker = site.worker(
        "--tasks=tests.processes.threaded", "--tasks=tests.processes.jobs", "--until-empty", processes=2
    )
    assert worker.wait() == 0, worker.text
    assert len([line for line in worker.text.splitlines() if "spawned instead of forked" in line]) == 1
    site.wait_gone()
    site.ledger.check_done_once(tasks)
    assert site.task(guilty, "status", "error_kind") == ("failed", "killed")
