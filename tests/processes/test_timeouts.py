"""Whose timeout holds: the task's own, else its handler's, else none; for whoever ends executions."""

from __future__ import annotations

from tests.processes.harness import LEASE, Site


def test_a_task_has_the_timeout_that_it_was_given(site: Site) -> None:
    """A handler's timeout ends its tasks, a longer one of the task lets it finish, a shorter one ends it sooner, and
    without any a task may last longer than a lease; each is executed once (TO05, ST05)."""
    seconds = LEASE + 1.0
    (default,) = site.enqueue("brief_nap", {"seconds": 60}, max_attempts=1)
    (longer,) = site.enqueue("brief_nap", {"seconds": seconds}, timeout=60)
    (shorter,) = site.enqueue("nap", {"seconds": 60}, timeout=1, max_attempts=1)
    (none,) = site.enqueue("nap", {"seconds": seconds})
    site.worker(processes=4)
    site.wait_finished([default, longer, shorter, none])
    for task in (default, shorter):
        assert site.task(task, "status", "error_kind", "attempt") == ("failed", "timeout", 1)
        assert site.task(task, "error")[0].startswith("timed out after 1 s")
        assert len(site.ledger.executions(task)) == 1
    site.ledger.check_executed_once([longer, none])
