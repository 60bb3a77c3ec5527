"""What handlers may make of their task: signals, steps that outlive a worker, and a transaction of their own."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.processes import procfs
from tests.processes.harness import Site
from tests.processes.test_leases import RESCUED_WITHIN, of_group


@pytest.mark.parametrize(
    ("name", "status", "attempt", "executions", "kind"),
    [
        ("retry", "done", 2, 2, None),
        ("snooze", "done", 1, 2, None),
        ("cancel", "cancelled", 1, 1, "cancelled"),
        ("fail", "failed", 1, 1, "Fail"),
    ],
)
def test_what_a_handler_raises_on_purpose(
    site: Site, name: str, status: str, attempt: int, executions: int, kind: str | None
) -> None:
    """Retry costs an attempt and comes back, Snooze costs none, Cancel and Fail end the task at once."""
    (task,) = site.enqueue("raise_once", {"name": name}, max_attempts=3)
    worker = site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    assert site.task(task, "status", "attempt", "error_kind") == (status, attempt, kind)
    assert len(site.ledger.executions(task)) == executions


@pytest.mark.parametrize("name", ["bad-retry", "bad-snooze"])
def test_a_signal_that_makes_no_sense_is_a_failure(site: Site, name: str) -> None:
    """Retry(after=-1) and Snooze('x') fail the task with what to write instead; the worker goes on (RT07)."""
    (task,) = site.enqueue("raise_once", {"name": name}, max_attempts=1)
    (after,) = site.enqueue("note")
    worker = site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    status, kind, error = site.task(task, "status", "error_kind", "error")
    assert (status, kind) == ("failed", "UsageError")
    assert error.startswith("UsageError: Retry(after=...): " if name == "bad-retry" else "UsageError: Snooze(...): ")
    site.ledger.check_executed_once([after])


def test_steps_outlive_a_killed_worker(site: Site) -> None:
    """What a step has stored is not done again after its worker was killed; the last checkpoint is there."""
    (task,) = site.enqueue("steps", {"gate": "open"})
    site.worker()
    stored = "SELECT count(*) FROM work_step WHERE task_id = ?"
    site.wait_until(lambda: site.ledger.value(stored, task) == 3, "two steps and a checkpoint are stored")
    ((_, pid),) = site.workers().values()
    procfs.kill(pid)
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "it is executed again")
    site.open_gate("open")
    site.wait_finished([task])
    first, second = (line.run for line in site.ledger.executions(task))
    result = json.loads(site.task(task, "result_json")[0])
    assert result == {"run": second, "steps": [first, first], "last": {"reached": 2}}


def effects(site: Site, task: int) -> int:
    """Return how many rows a task has written for itself."""
    return int(site.ledger.value("SELECT count(*) FROM test_effects WHERE task = ?", task))


@pytest.fixture
def writing_site(site: Site) -> Site:
    """Give a place for a fleet whose handlers have a table of their own."""
    site.ledger.write("CREATE TABLE test_effects (task INTEGER NOT NULL)")
    return site


def test_effects_commit_with_the_completion(writing_site: Site) -> None:
    """What a handler wrote in ctx.transaction() is there when its task is done, and gone when the handler failed, also
    for tasks that were claimed in a batch."""
    good = writing_site.enqueue("own_rows", *[{"gate": "open"}] * 5)
    (bad,) = writing_site.enqueue("own_rows", {"gate": "open", "fails": True}, max_attempts=1)
    notes = writing_site.enqueue("note", count=5)
    writing_site.open_gate("open")
    worker = writing_site.worker("--until-empty", "--prefetch=20")
    assert worker.wait() == 0, worker.text
    writing_site.ledger.check_executed_once([*good, *notes])
    assert writing_site.task(bad, "status", "error_kind") == ("failed", "RuntimeError")
    assert [effects(writing_site, task) for task in (*good, bad)] == [1] * 5 + [0]


def test_effects_of_a_lost_claim_are_undone(writing_site: Site) -> None:
    """A worker that is stopped past its lease, and woken after another finished its task, leaves no effects (DX04)."""
    site = writing_site
    (task,) = site.enqueue("own_rows", {"gate": "open"})
    site.worker("--worker-id=first")
    site.wait_executing([task])
    _, pid = site.workers()["first"]
    site.worker("--worker-id=second")
    site.wait_workers(2)
    for victim in of_group(site, pid):
        os.kill(victim, signal.SIGSTOP)
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "another worker begins the task", RESCUED_WITHIN)
    site.open_gate("open")
    site.wait_finished([task])
    before = site.task(task, "*")
    # Before its supervisor can end it, the worker commits what it has, or tries to.
    os.kill(pid, signal.SIGCONT)
    dropped = "its result and its transaction are dropped"
    site.wait_until(lambda: dropped in site.log_text(), "the late transaction is dropped")
    assert site.task(task, "*") == before
    assert effects(site, task) == 1


def test_a_worker_killed_inside_its_transaction_leaves_nothing(writing_site: Site) -> None:
    """A worker that dies between its handler's end and the commit has done nothing; the next one does it once."""
    once = writing_site.directory / "killed-once"
    (task,) = writing_site.enqueue("die_in_transaction", {"once": str(once)})
    worker = writing_site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    assert writing_site.status(task) == "done"
    assert len(writing_site.ledger.executions(task)) == 2
    assert effects(writing_site, task) == 1


def test_results_reach_the_dependent_task(site: Site) -> None:
    """A task that waits for others is executed after them, and is given what they returned."""
    parents = site.enqueue("raise_once", {"name": "retry"}, {"name": "snooze"})
    (child,) = site.enqueue("add_parents", depends_on=parents)
    worker = site.worker("--until-empty", processes=2)
    assert worker.wait() == 0, worker.text
    stored = [json.loads(site.task(parent, "result_json")[0]) for parent in parents]
    assert json.loads(site.task(child, "result_json")[0]) == stored
