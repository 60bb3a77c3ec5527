"""What was finished is counted, whoever is killed."""

from __future__ import annotations

import pytest

from fleet.worker.tally import MOST_UNWRITTEN
from tests.processes import procfs
from tests.processes.harness import Site

TASKS = 6_000
KILLS = 3


def done(site: Site) -> int:
    """Return how many tasks are done."""
    return int(site.ledger.value("SELECT count(*) FROM work_queue WHERE status = 'done'"))


def counted(site: Site) -> int:
    """Return how many tasks the statistics count as done."""
    return int(site.ledger.value("SELECT coalesce(sum(done), 0) FROM work_minute"))


@pytest.mark.parametrize("victim", ["worker", "group"])
@pytest.mark.parametrize("prefetch", ["auto", "1"])
def test_a_kill_takes_few_counts_along(site: Site, victim: str, prefetch: str) -> None:
    """With beats that come seldom, a worker or a whole group is killed while it is busy, several times: next to all of
    what was done is counted."""
    site.enqueue("fleet.noop", count=TASKS, max_attempts=10)
    options = (f"--prefetch={prefetch}", "--heartbeat-interval=20", "--lease=60", "--until-empty")
    group = site.worker(*options)
    for kill in range(1, KILLS + 1):
        site.wait_until(lambda part=kill: done(site) > part * TASKS // (KILLS + 3), "some are done")  # type: ignore[misc]
        if victim == "group":
            site.kill_all()
            group = site.worker(*options)
        else:
            for _, pid in site.workers().values():
                procfs.kill(pid)
    assert group.wait() == 0
    assert done(site) == TASKS
    assert TASKS - KILLS * MOST_UNWRITTEN < counted(site) <= TASKS
