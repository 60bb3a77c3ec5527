"""Who is believed alive, and for how long: stopped, suspended, silent and killed workers, and what they held."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from tests.processes import procfs
from tests.processes.harness import LEASE, MAINTENANCE, Site
from tests.processes.stranger import write_lock

RESCUED_WITHIN = LEASE + 1.25 * MAINTENANCE + 3
"""Seconds: a lease, the longest pause between two maintenance passes, and an allowance for a loaded machine."""


@pytest.mark.parametrize("stopped", ["worker", "group"])
def test_a_late_completion_changes_nothing(site: Site, stopped: str) -> None:
    """A worker, or a whole group, that is stopped past its lease wakes after another finished its task: whatever it
    still does with it changes nothing (DX04, DX08, ST19)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    life, pid = site.workers()["first"]
    site.worker("--worker-id=second")
    site.wait_workers(2)
    group = of_group(site, pid)
    for victim in [pid] if stopped == "worker" else group:
        os.kill(victim, signal.SIGSTOP)
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "another worker begins the task", RESCUED_WITHIN)
    site.open_gate("open")
    site.wait_finished([task])
    before = site.task(task, "*")
    if stopped == "group":
        # Before its keeper can tell it better, the worker offers its result.
        os.kill(pid, signal.SIGCONT)
        site.wait_until(lambda: "was lost: its result is dropped" in site.log_text(), "the late result is dropped")
    for victim in group:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    # Its group may have been given up meanwhile: then the new life ends as soon as it has begun.
    lives = "SELECT incarnation FROM worker_registry WHERE worker_id = 'first'"
    site.wait_until(lambda: site.ledger.value(lives) != life, "the worker has a new life")
    assert site.task(task, "*") == before
    site.ledger.check_done_once([task])
    assert [line.token for line in site.ledger.executions(task)] == [1, 2]


def test_a_group_that_was_given_up_says_so(site: Site) -> None:
    """A group that was taken for lost while it was stopped ends with exit code 1 and one line when it wakes; its
    task, which others had meanwhile, is done once (ST19)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    first = site.worker("--worker-id=first")
    site.wait_executing([task])
    ((_, pid),) = site.workers().values()
    group = of_group(site, pid)
    for victim in group:
        os.kill(victim, signal.SIGSTOP)
    site.worker("--worker-id=second")
    given_up = "SELECT count(*) FROM worker_group WHERE status = 'failed'"
    site.wait_until(lambda: site.ledger.value(given_up), "the group is given up")
    site.open_gate("open")
    for victim in group:
        # Who wakes first may have ended the others by now.
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    assert first.wait() == 1
    assert first.text.count("was taken for lost while nobody beat for it") == 1
    site.wait_finished([task])
    site.ledger.check_done_once([task])


def of_group(site: Site, worker: int) -> list[int]:
    """Return a worker's supervisor, its keeper and itself."""
    supervisor = procfs.parent(worker)
    return [pid for pid in site.processes() if pid == supervisor or procfs.parent(pid) == supervisor]


def test_a_worker_stopped_before_it_knows_its_claim(site: Site) -> None:
    """A worker that is stopped right after its claim committed, woken after the task went to another, and told to end,
    releases nothing that is not its own (DX07)."""
    once = site.directory / "stopped-once"
    (task,) = site.enqueue("note")
    first = site.worker("--worker-id=first", env={"FLEET_FAULTS": f"worker.claimed=once:{once}:stop"})
    site.wait_until(once.exists, "the claim is committed")
    # Its supervisor, which would end it when the lease is over, is stopped too.
    first.signal(signal.SIGSTOP)
    ((_, pid),) = site.workers().values()
    site.worker("--worker-id=second")
    site.wait_finished([task])
    before = site.task(task, "*")
    os.kill(pid, signal.SIGCONT)
    first.signal(signal.SIGCONT)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert site.task(task, "*") == before
    site.ledger.check_done_once([task])
    assert len(site.ledger.executions(task)) == 1


def test_the_interpreter_held_for_three_leases(site: Site) -> None:
    """A handler that keeps the interpreter lock for three leases runs once, and its worker stays alive (ST09, DX17)."""
    (task,) = site.enqueue("hold_interpreter", {"seconds": 3 * LEASE})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    life = site.workers()["first"]
    site.worker("--worker-id=second")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    assert site.workers()["first"] == life
    assert site.ledger.value("SELECT count(*) FROM worker_registry WHERE status = 'lost'") == 0


def test_a_claim_whose_reply_is_lost_comes_back(site: Site) -> None:
    """A claim that committed and whose reply never came is in the queue again within two heartbeats (DX20)."""
    once = site.directory / "lost-once"
    heartbeat = 2.0
    (task,) = site.enqueue("note")
    site.worker(
        f"--heartbeat-interval={heartbeat}", "--lease=10", env={"FLEET_FAULTS": f"worker.claimed=once:{once}:raise"}
    )
    site.wait_finished([task])
    site.ledger.check_done_once([task])
    assert [line.attempt for line in site.ledger.executions(task)] == [1], "the lost claim counts as no attempt"
    held = """SELECT (SELECT min(at) FROM test_ledger WHERE became = 'pending')
        - (SELECT min(at) FROM test_ledger WHERE became = 'running')"""
    # Found by the first beat that comes a heartbeat after the claim; the rest is allowance for a loaded machine.
    assert site.ledger.value(held) < 2 * heartbeat + 1.0


def test_death_is_seen_within_the_lease_whatever_the_timeout(site: Site) -> None:
    """After its whole group was killed, a task with two hours to run is executed again within a lease and a maintenance
    pass, by another life of the same worker id too, which never takes up its predecessor's claim (ST04, ST05, ST13)."""
    (task,) = site.enqueue("hold", {"gate": "open"}, timeout=7200)
    site.worker("--worker-id=same")
    site.wait_executing([task])
    ((before, pid),) = site.workers().values()
    for victim in of_group(site, pid):
        procfs.kill(victim)
    site.wait_gone()
    site.worker("--worker-id=same")
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "the task is begun again", RESCUED_WITHIN)
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_done_once([task])
    assert [line.attempt for line in site.ledger.executions(task)] == [1, 2], "the execution that died is charged"
    assert site.workers()["same"][0] != before


def test_a_worker_killed_right_after_its_claim(site: Site) -> None:
    """A worker that dies in the first moment after a claim loses no task (DX20, ST19)."""
    once = site.directory / "killed-once"
    tasks = site.enqueue("note", count=5)
    worker = site.worker("--until-empty", env={"FLEET_FAULTS": f"worker.claimed=once:{once}:kill"})
    assert worker.wait() == 0
    assert once.exists()
    site.ledger.check_done_once(tasks)
    assert len(site.ledger.executions()) == len(tasks)


def test_starting_others_touches_nobody(site: Site) -> None:
    """Workers and a scaler that start while a task runs do not take it for an orphan (ST12)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    site.worker("--worker-id=second")
    site.scale(1, "--pool=another")
    site.wait_workers(3)
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])


def test_a_foreign_lock_longer_than_the_lease(site: Site) -> None:
    """While a stranger holds the write lock past the lease, a running task goes on; it comes to its end once (DX08)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    site.worker("--worker-id=second")
    site.wait_workers(2)
    with write_lock(str(site.database)):
        site.open_gate("open")
        site.wait_until(site.ledger.lease_is_over, "a lease is over")
    site.wait_finished([task])
    site.ledger.check_done_once([task])


def test_a_lease_shorter_than_three_heartbeats_is_refused(bare_site: Site) -> None:
    """A lease that one late beat would end is refused, and nothing is changed (DX03)."""
    worker = bare_site.worker("--heartbeat-interval=1", "--lease=2.9")
    assert worker.wait() == 2
    assert worker.text.count("\n") == 1
    assert "shorter than 3 heartbeats" in worker.text
    assert list(bare_site.home.iterdir()) == []


def test_a_live_worker_keeps_its_id(site: Site) -> None:
    """A second worker with the id of one that lives is refused, and the first notices nothing (ST04)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    site.worker("--worker-id=same")
    site.wait_executing([task])
    life = site.workers()
    second = site.worker("--worker-id=same")
    assert second.wait() == 1, second.text
    assert "same" in second.text
    site.open_gate("open")
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    assert site.workers() == life


def test_an_order_to_the_dead_is_not_for_the_next_life(site: Site) -> None:
    """A worker that was told to go and died before it read that: the next one of its id stays and works (LF09)."""
    site.worker("--worker-id=same")
    ((before, pid),) = site.wait_workers(1).values()
    for victim in of_group(site, pid):
        procfs.kill(victim)
    site.wait_gone()
    site.ledger.write("UPDATE worker_registry SET status = 'terminating', terminating_at = last_heartbeat")
    site.worker("--worker-id=same")
    tasks = site.enqueue("note", count=3)
    site.wait_finished(tasks)
    site.ledger.check_executed_once(tasks)
    assert site.workers()["same"][0] != before
