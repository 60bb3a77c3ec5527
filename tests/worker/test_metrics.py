"""What a keeper measures of its workers: real processes, real numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from fleet.clock import SystemClock
from fleet.domain.execution import Fence
from fleet.worker import metrics as module
from fleet.worker.board import Board
from fleet.worker.metrics import RECENT, Metrics, facts
from fleet.worker.record import Phase, now_ns
from fleet.worker.slot import Slot
from tests.processes.running import wait_until

BUSY = "import sys; print('up', flush=True)\nwhile True: pass"
STARTER = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'while True: pass']); "
    "print('up', flush=True); sys.stdin.read(); child.kill()"
)
LARGE = "import sys; block = bytearray(200 << 20); print('up', flush=True); sys.stdin.read()"


class Processes:
    """Processes under test, with the record of a worker each."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, program: str) -> Slot:
        """Start a program, wait until it is up, and return the record of an idle worker that is that process."""
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        slot = Board(1).slots[0]
        slot.set_incarnation(f"{child.pid:032x}")
        slot.enters(Phase.IDLE)
        slot.pid = child.pid
        return slot

    def end(self) -> None:
        """End them."""
        for child in self.started:
            with suppress(psutil.NoSuchProcess):
                for started in psutil.Process(child.pid).children():
                    started.kill()
            child.kill()
            child.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Give processes that end with the test."""
    found = Processes()
    yield found
    found.end()


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    """Give what a keeper measures by that inherits nobody's workers."""
    return Metrics(tmp_path, None, inherits=False)


def measure(metrics: Metrics, slot: Slot) -> dict[str, Any]:
    """Return what is told of one worker: JSON values."""
    reading = slot.read()
    assert reading is not None
    [(_, told)] = metrics.measure([reading]).items()
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def test_the_cpu_of_a_command_is_its_workers(metrics: Metrics, processes: Processes) -> None:
    """What a worker has started, a shell command say, counts as its own while it runs."""
    slot = processes.start(STARTER)
    measure(metrics, slot)
    wait_until(lambda: measure(metrics, slot)["cpu_percent"] > 20, "the command's use is told")


def test_memory_is_what_the_process_holds(metrics: Metrics, processes: Processes) -> None:
    """The resident memory of the worker's own process is told, in MiB."""
    told = measure(metrics, processes.start(LARGE))
    assert 200 < told["rss_mb"] < 300


def test_cpu_is_the_share_since_the_last_beat(metrics: Metrics, processes: Processes) -> None:
    """A process that computes without a pause uses one CPU or little less, one that waits none; the first beat, which
    has nothing to compare with, tells nothing of it."""
    busy, idle = processes.start(BUSY), processes.start(LARGE)
    readings = [busy.read(), idle.read()]
    first = metrics.measure([reading for reading in readings if reading])
    assert all("cpu_percent" not in told for told in first.values())
    process = psutil.Process(busy.pid)
    began = sum(process.cpu_times()[:2])
    deadline = SystemClock().boottime() + 20
    while sum(process.cpu_times()[:2]) - began < 0.5:
        assert SystemClock().boottime() < deadline
    second = metrics.measure([reading for reading in readings if reading])
    assert 10 < second[busy.incarnation]["cpu_percent"] <= 110
    assert second[idle.incarnation]["cpu_percent"] < 10


def test_the_host_is_told_once(metrics: Metrics, processes: Processes, tmp_path: Path) -> None:
    """Load, memory and free disk are those of the host and of the given directory's file system."""
    host = measure(metrics, processes.start(LARGE))["host"]
    assert host["cpus"] == psutil.cpu_count()
    assert host["memory_total_mb"] == pytest.approx(psutil.virtual_memory().total / 2**20, abs=1)
    assert 0 < host["memory_available_mb"] <= host["memory_total_mb"]
    assert host["disk_free_mb"] == pytest.approx(psutil.disk_usage(str(tmp_path)).free / 2**20, rel=0.1)
    assert 0 <= host["disk_free_percent"] <= 100
    assert host["load_1m"] >= 0


def test_a_process_that_is_gone_costs_nobody_his_beat(metrics: Metrics, processes: Processes) -> None:
    """Of a process that has ended nothing is told but the host."""
    slot = processes.start(LARGE)
    processes.end()
    told = measure(metrics, slot)
    assert "rss_mb" not in told
    assert told["host"]["cpus"]


def test_a_host_without_figures_costs_nobody_his_beat(
    metrics: Metrics, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the host's figures cannot be had, the worker's own are told all the same."""

    def refuse(*_given: object) -> Any:
        raise PermissionError

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    told = measure(metrics, processes.start(LARGE))
    assert set(told["host"]) == {"cpus"}
    assert told["rss_mb"] > 0


@pytest.mark.parametrize(("inherits", "first"), [(False, 7), (True, 0)])
def test_what_was_done_lately(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, inherits: bool, first: int
) -> None:
    """What was done and failed within the last ten minutes is told; a keeper that took over others' workers counts from
    its own beginning."""
    now = 1_000.0
    monkeypatch.setattr(module, "boottime", lambda: now)
    metrics = Metrics(tmp_path, None, inherits=inherits)
    slot = processes.start(LARGE)
    slot.done = 7
    assert measure(metrics, slot)["recent"] == {"seconds": RECENT, "done": first, "failed": 0}
    slot.done, slot.failed = 10, 2
    now += RECENT - 1
    assert measure(metrics, slot)["recent"] == {"seconds": RECENT, "done": first + 3, "failed": 2}
    now += 2
    assert measure(metrics, slot)["recent"] == {"seconds": RECENT, "done": 0, "failed": 0}


def test_a_thousand_beats_keep_a_bounded_past(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beats in quick succession keep no more of the past than ten minutes need, and still see all of those."""
    now = 1_000.0
    monkeypatch.setattr(module, "boottime", lambda: now)
    metrics = Metrics(tmp_path, None, inherits=False)
    slot = processes.start(LARGE)
    for _ in range(2_000):
        slot.done += 1
        told = measure(metrics, slot)
        now += 0.5
    assert told["recent"]["done"] == pytest.approx(RECENT / 0.5, rel=0.02)


def test_since_when_a_task_is_executed(metrics: Metrics, processes: Processes) -> None:
    """While a task is executed the beat tells since when; the moment of the measurement stands beside it."""
    slot = processes.start(LARGE)
    assert "task_since" not in measure(metrics, slot)
    slot.hold([Fence(7, 1)])
    slot.begin(0, started=now_ns() - 90_000_000_000, timeout=0, retry_in=-1)
    told = measure(metrics, slot)
    taken = datetime.fromisoformat(told["at"]) - datetime.fromisoformat(told["task_since"])
    assert taken.total_seconds() == pytest.approx(90, abs=1)


def test_a_limit_that_was_asked_for_is_told(tmp_path: Path, processes: Processes) -> None:
    """The limit by which a worker is judged is the smaller one of its own and its control group's."""
    assert measure(Metrics(tmp_path, 3, inherits=False), processes.start(LARGE))["memory_limit_mb"] == 3
    assert facts(3)["memory_limit_mb"] == 3
    assert facts(None)["cpus"] == psutil.cpu_count()
