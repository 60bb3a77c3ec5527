"""Pools that follow the work, with real workers: from nobody to many and back to nobody."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tests.processes.harness import Site
from tests.processes.running import Running

SETTINGS = {
    "drain_time": "scaling=drain_time; drain_time=0.5; stabilization_window=2",
    "vanilla": "scaling=vanilla; upper_task_ratio=1; stabilization_window=2",
}


def options(site: Site, policy: str, *more: str) -> list[str]:
    """Return the scaler's options of a pool of at most four workers that follows the work."""
    return [f"--policy-content={SETTINGS[policy]}", "--max-workers=4", *more, *site.template()]


def by_a_loop(site: Site, policy: str, until: Callable[[], bool]) -> None:
    """Run one scaler that repeats its pass, until something is so."""
    scaler = site.scaler(*options(site, policy, "--every=1"))
    site.wait_until(until, "the pool has followed the work", 60)
    scaler.signal(signal.SIGTERM)
    scaler.wait()


def by_cron(site: Site, policy: str, until: Callable[[], bool]) -> None:
    """Run passes one after another, a process each, until something is so: only the first is told what to do."""
    passes: list[Running] = []

    def another_pass() -> bool:
        if not passes or passes[-1].ended():
            if passes:
                assert passes[-1].wait() == 0, passes[-1].text
            passes.append(site.scaler(*(site.what_may_run() if passes else options(site, policy))))
        return until()

    site.wait_until(another_pass, "the pool has followed the work", 60)
    assert passes[-1].wait() == 0, passes[-1].text


def decisions(site: Site) -> list[int]:
    """Return the numbers of workers that passes wanted, each change once."""
    wanted = [desired for (desired,) in site.ledger.rows("SELECT desired FROM scaling_decision ORDER BY decision_id")]
    return [one for one, before in zip(wanted, [None, *wanted], strict=False) if one != before]


@pytest.mark.parametrize("policy", sorted(SETTINGS))
@pytest.mark.parametrize("run", [by_a_loop, by_cron])
def test_a_burst_brings_workers_and_they_go_again(
    site: Site, policy: str, run: Callable[[Site, str, Callable[[], bool]], None]
) -> None:
    """A burst for a pool without workers starts one, who tells what the pool takes, then as many as the bound allows;
    when all is done nobody is left, and every task was executed once. A scaler that repeats its passes and passes from
    cron decide alike (SC05, SC06)."""
    tasks = site.enqueue("hold", *[{"gate": "open"}] * 8)
    reached: list[int] = []

    def followed() -> bool:
        if not reached and len({line.task for line in site.ledger.executions()}) == 4:
            reached.append(len(site.workers()))
            site.open_gate("open")
        done = site.ledger.value("SELECT count(*) FROM work_queue WHERE status = 'done'") == len(tasks)
        return done and bool(reached) and not site.workers() and not site.workers("terminating")

    run(site, policy, followed)
    assert reached == [4]
    assert decisions(site) == [1, 4, 0]
    site.ledger.check_executed_once(tasks)
    site.wait_gone()


def test_a_pool_at_zero_is_healthy_and_starts_again(site: Site) -> None:
    """Scaled to nothing for want of work the fleet is healthy; the next task starts a worker again without an untold
    beginning, since the pool knows what its workers took."""
    run = by_cron
    first = site.enqueue("note")
    run(site, "drain_time", lambda: _is_over(site, first))
    status = site.start("-m", "fleet", "status", "--json", f"--db-path={site.database}")
    assert status.wait() == 0, status.text
    assert json.loads(status.text)["healthy"]
    second = site.enqueue("note", count=3)
    run(site, "drain_time", lambda: _is_over(site, second))
    site.ledger.check_executed_once([*first, *second])
    site.wait_gone()


def _is_over(site: Site, tasks: list[int]) -> bool:
    open_ = "SELECT count(*) FROM work_queue WHERE status <> 'done'"
    return site.ledger.value(open_) == 0 and not site.workers() and not site.workers("terminating")
