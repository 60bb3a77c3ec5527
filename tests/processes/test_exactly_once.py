"""Each task is executed, and once: by many workers, and by workers that do not live long."""

from __future__ import annotations

import re
import time
from random import Random

from fleet.domain.retry import RetryPolicy
from tests.processes import procfs
from tests.processes.counts import COUNTS
from tests.processes.harness import Site
from tests.processes.procfs import Identity
from tests.processes.running import Running

AT_ONCE = RetryPolicy(wait="fixed", multiplier=0.1, max=0.1)
WORKERS = 8


def test_eight_workers_execute_every_task_exactly_once(site: Site) -> None:
    """Of many tasks for eight workers none is executed twice and none is missing (DX01)."""
    tasks = site.enqueue("note", count=COUNTS.tasks)
    worker = site.worker("--until-empty", processes=WORKERS)
    assert worker.wait(COUNTS.patience) == 0, worker.text
    # Tokens say nothing: what waited behind a task that took long, on a busy machine, was given back and claimed anew.
    site.ledger.check_executed_once(tasks)
    assert len({execution.process for execution in site.ledger.executions()}) > 1


def test_killing_at_random_loses_and_doubles_nothing(site: Site) -> None:
    """Workers, keepers and supervisors die at random: no task is missing or completed twice, and what is executed
    again was held by a worker that was killed (DX20, ST02, LF06)."""
    tasks = site.enqueue(
        "nap",
        *[{"seconds": number % 7 * 0.01} for number in range(COUNTS.killed_tasks)],
        max_attempts=1_000,
        retry=AT_ONCE,
    )
    site.scale(WORKERS)
    killed = kill_at_random(site, len(tasks))
    assert len(killed) >= COUNTS.kills / 2, "hardly anybody was killed"
    site.ledger.check_done_once(tasks)
    # A supervisor fences (kills) a worker whose lease nobody could confirm, as when keeper after keeper is killed.
    fenced = {int(task) for task in re.findall(r"killed worker \S+, task (\d+): fenced", site.log_text())}
    assert len(fenced) <= max(WORKERS, COUNTS.kills / 10), "fencing is the exception"
    innocent = [
        execution
        for _, execution in site.ledger.repeated_by()
        if execution.process not in killed and execution.task not in fenced
    ]
    assert innocent == [], f"executed in vain by workers that nobody killed; killed: {killed}"
    site.ledger.check_sound()


def kill_at_random(site: Site, tasks: int) -> set[Identity]:
    """Kill one process after the other until all tasks are done, with scaler passes as cron makes them; return whom."""
    random = Random(site.mark)
    cron = Cron(site)
    killed: set[Identity] = set()
    deadline = time.monotonic() + COUNTS.patience
    while (finished := len(site.ledger.accepted())) < tasks:
        assert time.monotonic() < deadline, site.report()
        cron.run_if_idle()
        if len(killed) < COUNTS.kills and finished >= tasks * len(killed) / COUNTS.kills:
            killed |= kill_one(site, random)
    cron.finish()
    return killed


class Cron:
    """Runs one scaler pass after the other, whatever becomes of each.

    Args:
        site: whose.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pass: Running | None = None

    def run_if_idle(self) -> None:
        """Start a pass if the last one has ended."""
        if self._pass is None or self._pass.ended():
            self.finish()
            self._pass = self._site.scaler(f"--target-workers={WORKERS}", *self._site.template())

    def finish(self) -> None:
        """Wait for the pass to end."""
        if self._pass is not None:
            assert self._pass.wait() == 0, self._pass.text


def kill_one(site: Site, random: Random) -> set[Identity]:
    """Kill a worker, a keeper or a supervisor, if there is one; return whom."""
    workers = [pid for _, pid in site.workers().values() if procfs.is_alive(pid)]
    roles = [role for role in (site.supervisors(), site.keepers(), workers) if role]
    if not roles:
        return set()
    victim = procfs.identity(random.choice(random.choice(roles)))
    procfs.kill(victim[0])
    return {victim}
