"""Workers that are replaced after their task: by count, by age, by memory; and what happens when memory runs out."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.processes.cgroups import memory_limit, used_megabytes
from tests.processes.harness import Site
from tests.processes.running import Running
from tests.processes.test_supervision import AT_ONCE

NO_GROUP = "this user cannot make a control group with a memory limit here"


def limited_worker(site: Site, procs: object, *options: str, processes: int = 1) -> Running:
    """Start `fleet-worker` inside a control group."""
    arguments = site.worker_arguments(*options, processes=processes)
    return site.start("-m", "tests.processes.limited", str(procs), *arguments)


def executed_by(site: Site) -> Counter[object]:
    """Return how many tasks each process has executed."""
    return Counter(line.process for line in site.ledger.executions())


def test_by_count(site: Site) -> None:
    """After --max-tasks tasks a worker is replaced; every task is executed once."""
    tasks = site.enqueue("note", count=7)
    assert site.worker("--max-tasks=3", "--until-empty").wait() == 0
    site.ledger.check_executed_once(tasks)
    assert sorted(executed_by(site).values()) == [1, 3, 3]


def test_by_age(site: Site) -> None:
    """A worker of --max-age is replaced, idle or not, and never before its task has ended."""
    (task,) = site.enqueue("nap", {"seconds": 2})
    site.worker("--max-age=1", "--idle-wait=0.2")
    site.wait_executing([task])
    first = site.workers()
    site.wait_finished([task])
    site.ledger.check_executed_once([task])
    site.wait_until(lambda: site.workers() and site.workers() != first, "the worker is replaced")
    second = site.workers()
    site.wait_until(lambda: site.workers() and site.workers() != second, "the idle worker is replaced too")


def test_by_memory(site: Site) -> None:
    """A worker that has grown to --max-memory-mb is replaced after its task, whatever other workers hold."""
    tasks = site.enqueue("leak", *[{"megabytes": 60}] * 4)
    assert site.worker("--max-memory-mb=130", "--until-empty").wait() == 0
    site.ledger.check_executed_once(tasks)
    assert sorted(executed_by(site).values()) == [2, 2]


def test_before_the_control_group_is_full(site: Site) -> None:
    """Where the processes share a limit, the worker that holds more than its share goes when it is nearly used up, and
    the kernel has to kill nobody."""
    with memory_limit(400) as procs:
        if procs is None:
            pytest.skip(NO_GROUP)
        tasks = site.enqueue("leak", *[{"megabytes": 20}] * 40)
        worker = limited_worker(site, procs, "--until-empty", "--prefetch=1")
        assert worker.wait(60) == 0
        site.ledger.check_executed_once(tasks)
        assert len(executed_by(site)) > 1
        assert "ended: recycled" in worker.text
        assert "memory" not in worker.text


def test_who_is_small_stays(site: Site) -> None:
    """Of many forked workers in a nearly full control group the one that has grown is replaced, and nobody else: what
    they share with each other is no worker's own, though each has it in its resident memory."""
    with memory_limit(400) as procs:
        if procs is None:
            pytest.skip(NO_GROUP)
        limited_worker(site, procs, "--prefetch=1", "--worker-id=w", processes=8)
        before = site.wait_workers(8)
        tasks = site.enqueue("leak", {"megabytes": 380 - used_megabytes(procs)})
        site.wait_finished(tasks)
        (grown,) = {line.pid for line in site.ledger.executions()}

        def is_replaced() -> bool:
            tasks.extend(site.enqueue("note", count=16))
            site.wait_finished(tasks)
            return grown not in {pid for _, pid in site.workers().values()}

        site.wait_until(is_replaced, "the worker that has grown is replaced")
        after = site.wait_workers(8)
        stayed = {name for name, life in before.items() if life[1] != grown}
        assert {name for name in stayed if after[name] == before[name]} == stayed
        site.ledger.check_executed_once(tasks)
        site.kill_all()


def test_a_task_that_eats_all_memory_is_condemned(site: Site) -> None:
    """A task that takes memory without end is killed by the kernel alone, its death says so, and it is condemned after
    its attempts, while the task beside it and all workers but its own live on (RT05, TO03)."""
    with memory_limit(600) as procs:
        if procs is None:
            pytest.skip(NO_GROUP)
        (beside,) = site.enqueue("hold", {"gate": "open"})
        limited_worker(site, procs, "--worker-id=w", processes=2)
        site.wait_executing([beside])
        (greedy,) = site.enqueue("eat_memory", max_attempts=2, retry=AT_ONCE)
        site.wait_finished([greedy], 60)
        status, kind, error = site.task(greedy, "status", "error_kind", "error")
        assert (status, kind) == ("failed", "out_of_memory")
        assert "died of signal 9 (SIGKILL)" in error
        assert "the kernel killed it because memory ran out" in error
        peaks = site.ledger.rows("SELECT signal, peak_memory_mb > 300 FROM work_attempt WHERE task_id = ?", greedy)
        assert peaks == [(9, 1), (9, 1)]
        site.open_gate("open")
        site.wait_finished([beside])
        site.ledger.check_executed_once([beside])
        site.kill_all()
