"""Tasks that take more memory than there is, in real control groups and under real limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.processes.control_group import ENTERING, ControlGroup, made
from tests.processes.harness import Site
from tests.processes.running import Running
from tests.processes.test_supervision import AT_ONCE

LIMITED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2); "
    "os.execv(sys.executable, sys.argv[2:])"
)


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    """Give a control group of 256 MiB; skips where this host lets nobody make one."""
    with made(256) as group:
        if group is None:
            pytest.skip("no control group for memory can be made here")
        yield group


def start_in(site: Site, group: ControlGroup, *options: str, processes: int) -> Running:
    """Start a worker group inside of a control group."""
    worker = [sys.executable, "-m", "fleet.cli.worker", *site.worker_arguments(*options, processes=processes)]
    return site.start("-c", ENTERING, str(group.procs), *worker)


def test_a_task_that_exhausts_the_control_group_dies_alone(site: Site, group: ControlGroup) -> None:
    """A task that takes all memory of its control group is killed with its worker, at each attempt, and condemned with
    the cause; what runs beside it lives on, in the same workers (RT05, TO03)."""
    neighbours = site.enqueue("hold", *[{"gate": "open"}] * 2)
    start_in(site, group, "--worker-id=w", processes=3)
    site.wait_executing(neighbours)
    (guilty,) = site.enqueue("hog", max_attempts=2, retry=AT_ONCE)
    site.wait_finished([guilty])
    status, kind, attempt, error = site.task(guilty, "status", "error_kind", "attempt", "error")
    assert (status, kind, attempt) == ("failed", "killed", 2)
    assert "died of signal 9 (SIGKILL)" in error
    assert "out of memory: the kernel killed it at the limit of its control group" in error
    rows = site.ledger.rows("SELECT error, signal, peak_memory_mb > 50 FROM work_attempt WHERE task_id = ?", guilty)
    assert [("out of memory" in words, signal, large) for words, signal, large in rows] == [(True, 9, 1)] * 2
    assert "died of signal 9, out of memory" in site.log_text()
    site.open_gate("open")
    site.wait_finished(neighbours)
    site.ledger.check_executed_once(neighbours)


def test_another_kill_is_not_called_out_of_memory(site: Site, group: ControlGroup) -> None:
    """A worker that kills itself in a control group with memory to spare is not said to have exhausted it."""
    (guilty,) = site.enqueue("die", max_attempts=1)
    start_in(site, group, processes=1)
    site.wait_finished([guilty])
    assert "; the kernel does this when memory runs out" in site.task(guilty, "error")[0]


def test_who_fills_the_control_group_is_replaced(site: Site, group: ControlGroup) -> None:
    """When its control group is nearly full, the worker that holds more than its share ends after its task and is
    replaced, uncharged, by one without what it had leaked; its neighbour stays."""
    group.limit(2_000)
    start_in(site, group, "--worker-id=w", "--prefetch=1", processes=2)
    before = site.wait_workers(2)
    tasks = site.enqueue("leak", {"mebibytes": 200})
    site.wait_finished(tasks)
    (leaking,) = {line.pid for line in site.ledger.executions()}
    full = group.used
    group.limit(full + full // 20)

    def is_replaced() -> bool:
        tasks.extend(site.enqueue("note", count=4))
        site.wait_finished(tasks)
        return leaking not in {pid for _, pid in site.workers().values()}

    site.wait_until(is_replaced, "the worker that leaked is replaced")
    after = site.wait_workers(2)
    stayed = {name for name, life in before.items() if life[1] != leaking}
    assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}
    assert group.used < full - 150
    site.ledger.check_executed_once(tasks)
    assert "ended: recycled" in site.log_text()


def test_memory_that_is_refused_fails_the_task_alone(site: Site) -> None:
    """Where the system refuses memory (ulimit -v), the task that asked fails with that error; its worker and what
    follows are untouched (RT05)."""
    (guilty,) = site.enqueue("hog", max_attempts=1)
    after = site.enqueue("note", count=3)
    worker = [sys.executable, "-m", "fleet.cli.worker", *site.worker_arguments("--until-empty")]
    limited = site.start("-c", LIMITED, "700", *worker)
    assert limited.wait() == 0, limited.text
    assert site.task(guilty, "status", "error_kind") == ("failed", "MemoryError")
    site.ledger.check_executed_once(after)
    assert len({line.process for line in site.ledger.executions()}) == 1
