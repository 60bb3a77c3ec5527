"""How soon after its time a task begins while nothing else happens."""

from __future__ import annotations

import random
import statistics

from tests.processes.harness import Site

TASKS = 20
LATE = 0.5
"""Seconds; a few milliseconds are usual, the rest is an allowance for a loaded machine."""

SILENCE = 2.6
"""Seconds between two tasks, after which a keeper does not look often any more."""


def lateness(site: Site) -> list[float]:
    """Return how many seconds after its time each task began, the least first."""
    return sorted(site.ledger.seconds("SELECT started_at, available_at FROM work_queue"))


def test_what_is_due_begins_in_time(site: Site) -> None:
    """Tasks with delays between a half and two seconds each begin at their time, in the median, with a worker that
    would otherwise sleep for minutes; none begins before (DX10)."""
    site.worker("--idle-wait=300")
    site.wait_workers(1)
    drawn = random.Random(7)
    tasks = [site.enqueue("note", delay=drawn.uniform(0.5, 2.0))[0] for _ in range(TASKS)]
    site.wait_finished(tasks)
    late = lateness(site)
    print(f"late by {statistics.median(late) * 1000:.0f} ms in the median, {late[-1] * 1000:.0f} ms at most")
    assert len(late) == TASKS
    # Times are stored to the millisecond.
    assert late[0] > -0.001
    assert statistics.median(late) < LATE


def test_what_is_due_ends_the_keepers_sleep(site: Site) -> None:
    """Tasks that become due after a silence, in which neither commits nor beats wake the keeper, begin at their time:
    it sleeps until then and no longer."""
    site.worker("--idle-wait=300", "--heartbeat-interval=60", "--lease=300")
    site.wait_workers(1)
    tasks = [site.enqueue("note", delay=SILENCE * number)[0] for number in range(1, 5)]
    site.wait_finished(tasks)
    assert lateness(site)[-1] < LATE
