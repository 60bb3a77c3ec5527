"""How soon after its time a task begins while nothing else happens."""

from __future__ import annotations

import random
import statistics

from tests.processes.harness import Site

TASKS = 20
LATE = 0.5
"""Seconds; a few milliseconds are usual, the rest is an allowance for a loaded machine."""


def test_what_is_due_begins_in_time(site: Site) -> None:
    """Tasks with delays between a half and two seconds each begin at their time, in the median, with a worker that
    would otherwise sleep for minutes; none begins before (DX10)."""
    site.worker("--idle-wait=300")
    site.wait_workers(1)
    drawn = random.Random(7)
    tasks = [site.enqueue("note", delay=drawn.uniform(0.5, 2.0))[0] for _ in range(TASKS)]
    site.wait_finished(tasks)
    late = "SELECT (julianday(started_at) - julianday(available_at)) * 86400 FROM work_queue"
    seconds = sorted(value for (value,) in site.ledger.rows(late))
    print(f"late by {statistics.median(seconds) * 1000:.0f} ms in the median, {seconds[-1] * 1000:.0f} ms at most")
    assert len(seconds) == TASKS
    # julianday() is a float of days: good for a tenth of a millisecond.
    assert seconds[0] > -0.001
    assert statistics.median(seconds) < LATE
