"""How workers end: drained, interrupted, emptied; what is told, and what becomes of the tasks."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from fleet.domain.retry import RetryPolicy
from tests.processes.harness import LEASE, Site
from tests.processes.stranger import write_lock
from tests.processes.terminal import CONTROL_C

RELEASED = ("pending", 0, 1)
"""Status, attempt and interruptions of a task that was interrupted once from outside."""


def state(site: Site, task: int) -> tuple[object, ...]:
    """Return a task's status, attempt and interruptions."""
    return site.task(task, "status", "attempt", "interruptions")


def test_an_idle_worker_ends_at_once(site: Site) -> None:
    """SIGTERM ends an idle worker in about a second, however long it would have waited for work (SD05)."""
    worker = site.worker("--idle-wait=300", processes=2)
    site.wait_workers(2)
    idle = "SELECT count(*) FROM worker_registry WHERE idle_since IS NOT NULL"
    site.wait_until(lambda: site.ledger.value(idle) == 2, "both are idle")
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    # About a tenth of it on a machine with nothing else to do.
    assert time.monotonic() - began < 3
    assert site.workers() == {}
    assert len(site.workers("terminated")) == 2
    site.wait_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_still_starting_ends_at_once(site: Site, number: signal.Signals) -> None:
    """A signal to end that comes while task modules are imported ends with 0, like any other, and nobody has
    registered (SD05)."""
    arguments = site.worker_arguments("--tasks=tests.processes.slow_import")
    # Whoever runs the tests may ignore SIGHUP (nohup), and so would what they start.
    heard = (
        f"import os, signal, sys; signal.signal({int(number)}, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    worker = site.start("-c", heard, sys.executable, "-m", "fleet.cli.worker", *arguments)
    site.wait_until((site.directory / "gates" / "importing").exists, "the import has begun")
    worker.signal(number)
    assert worker.wait() == 0
    assert site.ledger.value("SELECT count(*) FROM worker_group") == 0
    assert site.ledger.value("SELECT count(*) FROM worker_registry") == 0


def test_a_busy_worker_ends_after_its_task(site: Site) -> None:
    """After SIGTERM a worker beats until its task is done, longer than a lease if need be; others do not get the task,
    and nothing further is begun (SD01, SD05, DX17)."""
    (task,) = site.enqueue("hold", {"gate": "open"})
    worker = site.worker("--worker-id=first")
    site.wait_executing([task])
    (behind,) = site.enqueue("note", queue="behind")
    worker.signal(signal.SIGTERM)
    site.wait_until(lambda: "first" in site.workers("terminating"), "the worker is terminating")
    site.worker("--worker-id=second", "--queue=default")
    since = site.ledger.value("SELECT max(lease_expires_at) FROM worker_registry WHERE worker_id = 'first'")
    beat = "SELECT 1 FROM worker_registry WHERE worker_id = 'first' AND last_heartbeat > ?"
    site.wait_until(lambda: site.ledger.value(beat, since), "it has beaten for longer than a lease", 4 * LEASE)
    site.open_gate("open")
    assert worker.wait() == 0
    site.ledger.check_executed_once([task])
    assert site.status(behind) == "pending"
    assert "draining: waiting for 1 tasks; signal again to interrupt them" in worker.text


@pytest.mark.parametrize("handler", ["hold", "ignore_sigterm"])
def test_a_second_signal_releases(site: Site, handler: str) -> None:
    """A second signal ends the task that runs, whatever it does about signals, and gives it back uncharged (SD06)."""
    (task,) = site.enqueue(handler, {"gate": "never"})
    worker = site.worker()
    site.wait_executing([task])
    worker.signal(signal.SIGTERM)
    site.wait_until(lambda: "signal again" in worker.text, "the first signal is answered")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "interrupting 1 tasks: they go back to the queue" in worker.text
    assert state(site, task) == RELEASED
    site.wait_gone()


def test_control_c_reaches_the_supervisor_alone(site: Site) -> None:
    """^C in the terminal drains: the task in the same terminal is not touched by it; a second ^C interrupts (SD06)."""
    spared, interrupted = site.enqueue("hold", {"gate": "open"}, {"gate": "never"})
    terminal = site.terminal("-m", "fleet.cli.worker", *site.worker_arguments("--prefetch=1", processes=2))
    site.wait_executing([spared, interrupted])
    foreground = [pid for pid in site.processes() if os.getpgid(pid) == terminal.process.pid]
    assert foreground == [terminal.process.pid]
    terminal.type(CONTROL_C)
    site.wait_until(lambda: "waiting for 2 tasks" in terminal.text(), "the first ^C is answered")
    site.open_gate("open")
    site.wait_finished([spared])
    terminal.type(CONTROL_C)
    assert terminal.process.wait(20) == 0
    site.ledger.check_executed_once([spared])
    assert state(site, interrupted) == RELEASED
    assert "interrupting 1 tasks" in terminal.text()


def test_a_drain_timeout_interrupts(site: Site) -> None:
    """What still runs at --drain-timeout is ended and given back uncharged (SD07)."""
    (task,) = site.enqueue("hold", {"gate": "never"})
    worker = site.worker("--drain-timeout=0.5")
    site.wait_executing([task])
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert state(site, task) == RELEASED


def test_ordered_stops_never_condemn_a_task(site: Site) -> None:
    """Scaling down three times onto the same long task, past the drain timeout, costs it no attempt (SD07)."""
    (task,) = site.enqueue("hold", {"gate": "open"}, max_attempts=1)
    for round_ in range(1, 4):
        site.scale(1, "--", *OPTIONS)
        wait_executions(site, task, round_)
        site.scale(0, wait=None)
        site.wait_gone()
        assert state(site, task) == ("pending", 0, round_)
    site.open_gate("open")
    site.scale(1, "--", *OPTIONS)
    site.wait_finished([task])
    assert state(site, task) == ("done", 1, 3)


def wait_executions(site: Site, task: int, number: int) -> None:
    """Wait until the task was begun so often."""
    site.wait_until(lambda: len(site.ledger.executions(task)) == number, f"the task is begun {number} times")


OPTIONS = ("--tasks=tests.processes.jobs", "--heartbeat-interval=0.5", "--lease=2", "--drain-timeout=0.3")


def test_until_empty_waits_for_retries_and_not_for_tomorrow(site: Site) -> None:
    """--until-empty ends when nothing is due within a minute: after retries and short delays, whatever the results,
    and before what is due in an hour."""
    again = RetryPolicy(wait="fixed", multiplier=0.5, max=0.5)
    (flaky,) = site.enqueue("flaky", retry=again)
    (failing,) = site.enqueue("exit_politely", max_attempts=1)
    (soon,) = site.enqueue("async_note", delay=1)
    (later,) = site.enqueue("note", delay=3600)
    worker = site.worker("--until-empty", processes=3)
    assert worker.wait() == 0, worker.text
    assert [site.status(task) for task in (flaky, failing, soon, later)] == ["done", "failed", "done", "scheduled"]
    assert site.task(flaky, "attempt") == (2,)
    assert site.ledger.value("SELECT status FROM worker_group") == "stopped"
    site.wait_gone()


def test_workers_deregister_when_the_database_lets_them(site: Site) -> None:
    """Workers told to end while a stranger holds the write lock wait for it, and leave no ghosts (SD08, LK01)."""
    worker = site.worker(processes=3)
    before = site.wait_workers(3)
    with write_lock(str(site.database)):
        worker.signal(signal.SIGTERM)
        site.wait_until(site.ledger.lease_is_over, "the leases are over")
        assert set(site.workers()) == set(before)
        assert not worker.ended()
    assert worker.wait() == 0, worker.text
    assert len(site.workers("terminated")) == 3
    site.wait_gone()
