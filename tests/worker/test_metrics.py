"""What a keeper measures of its workers: figures that are there, and none that fail a beat."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from fleet import process
from fleet.clock import ManualClock
from fleet.domain.execution import Fence
from fleet.domain.health import assess
from fleet.worker import metrics
from fleet.worker.metrics import WINDOW, Meter, resources
from fleet.worker.record import Phase, Reading, Running
from fleet.worker.settings import WorkerSettings
from tests.monitoring.test_status import worker as worker_row
from tests.processes.running import wait_until
from tests.test_cgroup import Tree

SETTINGS = WorkerSettings(group_id="g", worker_id="w")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def reading(pid: int | None = None, *, done: int = 0, failed: int = 0, running: tuple[Running, ...] = ()) -> Reading:
    """Return the record of a worker; of this very process unless a pid is given."""
    own = os.getpid() if pid is None else pid
    return Reading("0" * 32, own, Phase.EXECUTING, 0, False, (), running, done, failed)


class Measured:
    """A meter whose clock a test moves, and what it says of one worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.clock = ManualClock()
        # The worker, if there is one, was started a minute before.
        monkeypatch.setattr(metrics, "boottime", self.clock.boottime)
        monkeypatch.setattr(process, "start_ticks", self._started_at)
        self.born = self.clock.boottime() - 60
        self.meter = Meter(SETTINGS, folder, self.clock)

    def _started_at(self, pid: int) -> int | None:
        return int(self.born * os.sysconf("SC_CLK_TCK")) if pid == os.getpid() else None

    def after(self, seconds: float, **counts: int) -> dict[str, Any]:
        """Return what is measured so much later."""
        self.clock.advance(seconds)
        return self.now(reading(**counts))

    def now(self, one: Reading) -> dict[str, Any]:
        """Return what is measured now."""
        self.meter.look()
        return dict(self.meter.measure(0, one))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    """Give a meter."""
    return Measured(monkeypatch, tmp_path)


def test_the_shape(measured: Measured, tmp_path: Path) -> None:
    """All figures are there, under the names that health and people read."""
    found = measured.after(0, done=3, failed=1)
    assert found.keys() == {"at", "cpu_percent", "rss_mb", "memory_limit_mb", "host", "recent", "task_since"}
    assert found["at"] == "2026-01-01T00:00:00.000Z"
    assert found["host"].keys() == {
        *("load_1m", "cpus", "memory_available_mb", "memory_total_mb", "disk_free_mb", "disk_free_percent")
    }
    assert found["rss_mb"] == pytest.approx(psutil.Process().memory_info().rss / 2**20, rel=0.2)
    assert 0 < found["host"]["disk_free_percent"] <= 100
    assert found["host"]["disk_free_mb"] == pytest.approx(psutil.disk_usage(str(tmp_path)).free / 2**20, rel=0.1)
    assert found["recent"] == {"seconds": 60.0, "done": 3, "failed": 1}
    assert found["task_since"] is None


def test_health_reads_it(measured: Measured) -> None:
    """What is measured is what a worker's health is judged by: no check is unknown."""
    row = worker_row("w")
    now = row.last_heartbeat
    measured.clock.step((now - measured.clock.now()).total_seconds())
    health = assess(replace(row, metadata=measured.after(0, done=30, failed=1)), now)
    assert "unknown" not in health.verdicts.values()


def test_cpu_is_measured_between_beats(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU is the share of one CPU since the last beat, from the start of the process at first; time that an orphan took
    with it makes it no less than nothing."""
    used = 6.0
    monkeypatch.setattr(metrics, "_cpu_seconds", lambda _process: used)
    assert measured.after(0)["cpu_percent"] == 10.0
    used = 11.0
    assert measured.after(5)["cpu_percent"] == 100.0
    assert measured.after(5)["cpu_percent"] == 0.0
    used = 2.0
    assert measured.after(5)["cpu_percent"] == 0.0


@contextmanager
def child(*command: str) -> Iterator[int]:
    """Give the pid of a child of this process that lasts as long as the block."""
    started = subprocess.Popen([sys.executable, "-c", *command])
    try:
        yield started.pid
    finally:
        started.kill()
        started.wait()


def test_children_count() -> None:
    """The CPU time of what a worker has started is its own while that runs, and when it has ended."""
    own = psutil.Process()

    def of_children() -> float:
        return metrics._cpu_seconds(own) - sum(own.cpu_times()[:2])

    before = of_children()
    with child("while True: pass"):
        wait_until(lambda: of_children() >= before + 0.2, "the child's time is counted")
    assert of_children() >= before + 0.15


def test_recent_is_a_sliding_window(measured: Measured) -> None:
    """Tasks done and failed are those of the last ten minutes; just before and at its end the oldest still count."""
    measured.after(0, done=10, failed=1)
    assert measured.after(300, done=15, failed=1)["recent"] == {"seconds": 360.0, "done": 15, "failed": 1}
    assert measured.after(WINDOW - 301, done=20, failed=2)["recent"] == {"seconds": WINDOW, "done": 20, "failed": 2}
    assert measured.after(1, done=20, failed=2)["recent"] == {"seconds": WINDOW, "done": 10, "failed": 1}
    assert measured.after(WINDOW, done=20, failed=4)["recent"] == {"seconds": WINDOW, "done": 0, "failed": 2}


def test_the_window_does_not_grow(measured: Measured) -> None:
    """What is remembered of a worker is bounded by the window."""
    for beat in range(400):
        measured.after(5, done=beat)
    assert len(measured.meter._lives[0].samples) <= WINDOW / 5 + 2


def test_what_an_old_worker_did_before_is_not_recent(measured: Measured) -> None:
    """A new keeper counts an old worker's tasks from its own first beat on."""
    measured.born -= WINDOW
    assert measured.after(0, done=500, failed=100)["recent"] == {"seconds": 0.0, "done": 0, "failed": 0}
    assert measured.after(5, done=503, failed=100)["recent"] == {"seconds": 5.0, "done": 3, "failed": 0}


def test_another_process_in_the_slot_begins_anew(measured: Measured) -> None:
    """A replaced worker has nothing of the counts and the CPU time of the one before."""
    measured.after(0, done=10)
    with child("import time; time.sleep(600)") as pid:
        measured.clock.advance(5)
        measured.now(reading(pid, done=1))
        measured.clock.advance(5)
        found = measured.now(reading(pid, done=3))
    assert found["recent"] == {"seconds": 5.0, "done": 3, "failed": 0}
    assert found["cpu_percent"] < 50


def test_since_when_the_oldest_execution_lasts(measured: Measured) -> None:
    """`task_since` is the start of what is executed longest, as wall time."""
    started = int((measured.clock.boottime() - 12.5) * 1e9)
    running = (Running(Fence(1, 1), started, 0), Running(Fence(2, 1), started + 10**9, 0))
    assert measured.now(reading(running=running))["task_since"] == "2025-12-31T23:59:47.500Z"


def test_a_process_that_is_gone_is_left_out(measured: Measured) -> None:
    """Of a process that has vanished only its counts are told."""
    with child("pass") as pid:
        pass
    found = measured.now(reading(pid, done=2))
    assert not {"rss_mb", "cpu_percent"} & found.keys()
    assert "recent" in found


@pytest.fixture
def broken_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing about the host be readable."""

    def fail(*_given: object, **_more: object) -> Any:
        raise RuntimeError("no /proc here")

    for owner, name in ((psutil, "virtual_memory"), (psutil, "disk_usage"), (os, "getloadavg"), (os, "cpu_count")):
        monkeypatch.setattr(owner, name, fail)
    monkeypatch.setattr(psutil.Process, "memory_info", lambda _self: fail_as_psutil())
    monkeypatch.setattr(metrics, "memory_group", fail)
    metrics.host_facts.cache_clear()
    yield
    metrics.host_facts.cache_clear()


def fail_as_psutil() -> Any:
    """Fail as psutil does where it may not look."""
    raise psutil.AccessDenied


@pytest.mark.usefixtures("broken_host")
def test_nothing_that_cannot_be_read_fails_a_beat(measured: Measured) -> None:
    """On a host that tells nothing the figures are missing, and nothing is raised."""
    found = measured.after(0, done=1)
    assert found["host"] == {}
    assert found.keys() == {"at", "host", "recent", "task_since"}
    assert resources(SETTINGS).keys() == {"python", "platform"}


def test_the_smaller_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker may have what its own limit and its control group's both allow."""
    group = Tree(tmp_path, 2).process_in("/a").level("a", 512 << 20, 1).found
    monkeypatch.setattr(metrics, "memory_group", lambda: group)
    assert metrics.memory_limit_mb(SETTINGS) == 512.0
    assert metrics.memory_limit_mb(replace(SETTINGS, max_memory_mb=100)) == 100.0
    assert metrics.memory_limit_mb(replace(SETTINGS, max_memory_mb=1_000)) == 512.0
    monkeypatch.setattr(metrics, "memory_group", lambda: None)
    assert metrics.memory_limit_mb(SETTINGS) is None


def test_resources_are_facts() -> None:
    """At registration a worker says what it has: CPUs, memory, Python, platform."""
    found = resources(replace(SETTINGS, max_memory_mb=77))
    assert found["cpus"] == os.cpu_count()
    assert found["memory_limit_mb"] == 77.0
    assert found["platform"].startswith("Linux")
    assert re.fullmatch(r"3\.\d+\.\d+", found["python"])


def test_times_are_written_as_rows_have_them(measured: Measured) -> None:
    """Times have the one form that rows have."""
    assert TIME.fullmatch(measured.after(0)["at"])
