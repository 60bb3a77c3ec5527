"""Cancelling what runs: asked first, killed after a grace, and never tried again whatever the handler does."""

from __future__ import annotations

import os
import signal
import time

import pytest

from fleet import Fleet
from fleet.worker.enforcement import CANCEL_GRACE
from tests.processes.harness import Site


def cancel(site: Site, *tasks: int) -> None:
    """Cancel tasks, or ask for their end."""
    fleet = Fleet(site.database)
    try:
        assert all(answer.obeyed for answer in fleet.storage().queue.cancel(tasks))
    finally:
        fleet.close()


def outcomes(site: Site, task: int) -> list[tuple[str, str]]:
    """Return how the attempts of a task ended that did not succeed."""
    return site.ledger.rows("SELECT outcome, error_kind FROM work_attempt WHERE task_id = ?", task)


@pytest.mark.parametrize("handler", ["heed", "break_when_asked"])
def test_a_handler_that_stops_when_asked_ends_cancelled(site: Site, handler: str) -> None:
    """A running task whose end is asked for ends cancelled, without a retry, whether its handler leaves or breaks down
    over it; its worker lives on (CA01)."""
    (task,) = site.enqueue(handler, max_attempts=5)
    site.worker()
    site.wait_executing([task])
    life = site.workers()
    asked = time.monotonic()
    cancel(site, task)
    site.wait_finished([task])
    # It is heard within about a second; the rest is an allowance for a loaded machine.
    assert time.monotonic() - asked < CANCEL_GRACE
    (after,) = site.enqueue("note")
    site.wait_finished([after])
    assert site.task(task, "status", "error_kind") == ("cancelled", "cancelled")
    assert len(site.ledger.executions(task)) == 1
    assert [outcome for outcome, _ in outcomes(site, task)] == ["cancelled"]
    assert site.workers() == life


def test_a_handler_that_does_not_stop_is_killed(site: Site) -> None:
    """A task that goes on after its cancel is ended with its worker, not before its grace is over, and is charged to
    nobody; the worker is replaced and goes on (CA01, CA06)."""
    (task,) = site.enqueue("hold", {"gate": "never"}, max_attempts=5)
    site.worker("--worker-id=w")
    site.wait_executing([task])
    ((before, _),) = site.workers().values()
    asked = time.monotonic()
    cancel(site, task)
    site.wait_finished([task])
    assert time.monotonic() - asked >= CANCEL_GRACE
    assert site.task(task, "status", "error_kind") == ("cancelled", "cancelled")
    (after,) = site.enqueue("note")
    site.wait_finished([after])
    site.ledger.check_executed_once([after])
    assert len(site.ledger.executions(task)) == 1
    assert site.workers()["w"][0] != before


def test_a_handler_that_ends_first_is_done(site: Site) -> None:
    """A handler that comes to its end in spite of the request has done its work, and that is what is written (CA01)."""
    (task,) = site.enqueue("finish_when_asked")
    site.worker()
    site.wait_executing([task])
    cancel(site, task)
    site.wait_finished([task])
    assert site.status(task) == "done"
    site.ledger.check_executed_once([task])


@pytest.mark.parametrize(
    ("handler", "code", "words"),
    [
        ("heed", 0, "was asked to stop: it has stopped and is cancelled"),
        ("finish_when_asked", 1, "was asked to stop: it ended done before it stopped"),
        ("break_when_asked", 0, "was asked to stop: it has stopped and is cancelled"),
    ],
)
def test_who_cancels_is_told_how_it_ended(site: Site, handler: str, code: int, words: str) -> None:
    """`fleet task cancel --wait` ends with the task, whose handler leaves, comes to its end first, or fails with
    attempts left, and says which (CA01)."""
    (task,) = site.enqueue(handler, max_attempts=5)
    site.worker()
    site.wait_executing([task])
    command = site.start("-m", "fleet", "task", "cancel", str(task), "--wait=30s", f"--db-path={site.database}")
    assert (command.wait(), command.text) == (code, f"task {task} {words}\n")
    assert len(site.ledger.executions(task)) == 1


def test_a_cancel_between_two_attempts_sticks(site: Site) -> None:
    """A task that waits for its next attempt is cancelled at once, and that attempt never comes (CA01, CA06)."""
    (task,) = site.enqueue("raise_always", {"name": "snooze"})
    site.worker("--worker-id=w")
    site.wait_until(lambda: site.status(task) == "scheduled", "it waits to be tried again")
    cancel(site, task)
    site.wait_finished([task])
    begun = len(site.ledger.executions(task))
    (after,) = site.enqueue("note", delay=0.5)
    site.wait_finished([after])
    assert site.status(task) == "cancelled"
    assert len(site.ledger.executions(task)) == begun


def test_what_waits_in_a_batch_does_not_begin(site: Site) -> None:
    """Tasks that a worker has claimed behind a long one are cancelled, and none of them begins (CA06)."""
    (long,) = site.enqueue("hold", {"gate": "open"})
    behind = site.enqueue("note", count=4)
    site.worker("--prefetch=5")
    site.wait_executing([long])
    cancel(site, *behind)
    site.wait_finished(behind)
    site.open_gate("open")
    site.wait_finished([long])
    assert {site.status(task) for task in behind} == {"cancelled"}
    assert {line.task for line in site.ledger.executions()} == {long}


def test_a_cancel_reaches_a_worker_without_its_supervisor(site: Site) -> None:
    """A worker whose supervisor and keeper are gone hears a cancel all the same (CA06)."""
    (task,) = site.enqueue("heed")
    worker = site.worker()
    site.wait_executing([task])
    (keeper,) = site.wait_until(site.keepers, "there is a keeper")
    worker.signal(signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    cancel(site, task)
    site.wait_finished([task])
    site.wait_gone()
    assert site.status(task) == "cancelled"
    assert len(site.ledger.executions(task)) == 1


def test_a_cancelled_task_of_a_killed_worker_is_not_rescued_to_life(site: Site) -> None:
    """A task whose end is asked for ends cancelled when its worker is killed: nobody executes it again (CA01)."""
    (task,) = site.enqueue("hold", {"gate": "never"}, max_attempts=5)
    site.worker()
    site.wait_executing([task])
    ((_, pid),) = site.workers().values()
    os.kill(pid, signal.SIGSTOP)
    cancel(site, task)
    os.kill(pid, signal.SIGKILL)
    site.wait_finished([task])
    (after,) = site.enqueue("note")
    site.wait_finished([after])
    assert site.status(task) == "cancelled"
    assert len(site.ledger.executions(task)) == 1
