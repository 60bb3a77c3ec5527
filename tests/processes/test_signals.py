"""What handlers raise on purpose, at every attempt, and when they leave because their worker is to go."""

from __future__ import annotations

import signal

import pytest

from fleet.domain.retry import MAX_INTERRUPTIONS
from tests.processes.harness import Site


@pytest.mark.parametrize(
    ("name", "executions", "status", "kind", "attempt"),
    [
        ("retry", 3, "failed", "Retry", 3),
        ("cancel", 1, "cancelled", "cancelled", 1),
        ("fail", 1, "failed", "Fail", 1),
        ("stopped", MAX_INTERRUPTIONS + 1, "failed", "interrupted_too_often", 0),
    ],
)
def test_signals_come_to_an_end(site: Site, name: str, executions: int, status: str, kind: str, attempt: int) -> None:
    """A handler that always asks for a retry uses up its attempts; one that always leaves of its own accord spends
    none, and is condemned once it has done so too often (RT05)."""
    (task,) = site.enqueue("raise_always", {"name": name}, max_attempts=3)
    worker = site.worker("--until-empty")
    assert worker.wait() == 0, worker.text
    assert site.task(task, "status", "error_kind", "attempt") == (status, kind, attempt)
    assert len(site.ledger.executions(task)) == executions
    assert len(site.workers("terminated")) == 1


def test_a_snooze_spends_no_attempt(site: Site) -> None:
    """A task with one attempt is snoozed as often as its handler wants, and every execution is the first attempt."""
    (task,) = site.enqueue("raise_always", {"name": "snooze"}, max_attempts=1)
    site.worker()
    site.wait_until(lambda: len(site.ledger.executions(task)) >= 4, "it is executed again and again")
    assert {line.attempt for line in site.ledger.executions(task)} == {1}
    assert site.ledger.value("SELECT count(*) FROM work_attempt WHERE outcome = 'failed'") == 0
    assert site.status(task) in ("scheduled", "pending", "running")


def test_a_drain_with_a_deadline_asks_first(site: Site) -> None:
    """A handler that heeds a drain with a deadline gives its task back uncounted, and the worker leaves at once; the
    next worker executes it as the same attempt."""
    (task,) = site.enqueue("heed", max_attempts=1)
    worker = site.worker("--drain-timeout=300")
    site.wait_executing([task])
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text
    assert site.task(task, "status", "attempt", "interruptions") == ("pending", 0, 1)
    second = site.worker("--drain-timeout=300")
    site.wait_until(lambda: len(site.ledger.executions(task)) == 2, "the next worker executes it")
    assert {line.attempt for line in site.ledger.executions(task)} == {1}
    second.signal(signal.SIGTERM)
    assert second.wait() == 0, second.text
    assert site.task(task, "status", "attempt", "interruptions") == ("pending", 0, 2)


def test_a_drain_without_a_deadline_asks_nobody_to_stop(site: Site) -> None:
    """A worker that is to go when its task is done lets it come to its end: the handler is not told to leave."""
    (task,) = site.enqueue("hold_unless_asked", {"gate": "open"})
    worker = site.worker()
    site.wait_executing([task])
    worker.signal(signal.SIGTERM)
    site.wait_until(lambda: site.workers("terminating"), "the worker is told to go")
    site.open_gate("open")
    assert worker.wait() == 0, worker.text
    site.ledger.check_executed_once([task])
