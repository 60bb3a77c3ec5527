"""How soon 100 workers are ready: `fleet-worker --processes 100` against 100 Python processes that import the same.

A worker is ready when it is registered and has claimed a task; each claims one that lasts until all have begun. The
time runs from the start of the command to the last claim, as the rows say. The other side imports the same modules in
as many separate processes, as many at a time as there are CPUs, and all at once; the faster of the two counts. Pairs
alternate in one run. Then the private memory (USS) of each worker is read, each with its first task in hand.

Bounds: at most a fifteenth of the time, at most 8 MiB for each worker. Exits 1 when one does not hold.

Usage: fast_start.py [--workers N] [--pairs N] [--quick]
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

MAX_RATIO = 1 / 15
MAX_PRIVATE_MB = 8.0
PATIENCE = 120.0

TASKS = """
import time
from pathlib import Path

from fleet import Fleet

app = Fleet()


@app.task()
def stay(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.2)
"""
IMPORTS = """
import os
import fleet.cli.worker
import fleet.storage.store
import fleet.worker.keeper
import fleet.worker.loop
from fleet.loading import load
load(["ready_tasks"])
os._exit(0)
"""
READY = """
SELECT count(*), max(q.claimed_at) FROM work_queue q JOIN worker_registry w
ON w.worker_id = q.worker AND w.incarnation = q.incarnation
WHERE q.status = 'running' AND w.status = 'active'
"""


@dataclass(frozen=True)
class Start:
    """How a start went: seconds until all were ready, and private MiB of each worker."""

    seconds: float
    private_mb: list[float]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the tasks can be imported."""
    return {**os.environ, "PYTHONPATH": str(folder), "FLEET_DB": str(folder / "fleet.db")}


@contextmanager
def place(workers: int) -> Iterator[Path]:
    """Give a folder with a database in which one task for each worker waits."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        folder = Path(name)
        (folder / "ready_tasks.py").write_text(TASKS)
        payload = f'{{"gate": "{folder / "gate"}"}}'
        enqueue = [sys.executable, "-m", "fleet", "enqueue", "stay", "--payload", payload, "--count", str(workers)]
        subprocess.run(enqueue, check=True, env=environment(folder), capture_output=True)
        yield folder


def fleet(workers: int) -> Start:
    """Start a worker group, wait until each of its workers has claimed a task, and end it."""
    with place(workers) as folder:
        command = [sys.executable, "-m", "fleet.cli.worker", "--tasks", "ready_tasks", "--processes", str(workers)]
        began = time.time()
        group = subprocess.Popen(command, env=environment(folder), stderr=subprocess.DEVNULL)
        try:
            ready = await_ready(folder / "fleet.db", workers)
            private = [private_mb(pid) for pid in pids(folder / "fleet.db")]
        finally:
            (folder / "gate").touch()
            group.send_signal(signal.SIGTERM)
            group.wait(PATIENCE)
        return Start(ready - began, private)


def await_ready(database: Path, workers: int) -> float:
    """Return when the last worker claimed its task, in seconds of the epoch."""
    deadline = time.monotonic() + PATIENCE
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        while time.monotonic() < deadline:
            ready, last = connection.execute(READY).fetchone()
            if ready == workers:
                return datetime.fromisoformat(last).timestamp()
            time.sleep(0.05)
    raise SystemExit(f"error: {ready} of {workers} workers were ready within {PATIENCE:g} s")


def pids(database: Path) -> list[int]:
    """Return the workers' processes."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return [pid for (pid,) in connection.execute("SELECT pid FROM worker_registry WHERE status = 'active'")]


def private_mb(pid: int) -> float:
    """Return the memory that would be free if the process ended."""
    return float(psutil.Process(pid).memory_full_info().uss) / 1_048_576


def separate(folder: Path, processes: int, at_a_time: int) -> float:
    """Return how long so many processes take to import the same modules."""
    command = [sys.executable, "-c", IMPORTS]
    began = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(processes):
        if len(running) == at_a_time:
            ended(running.pop(0))
        running.append(subprocess.Popen(command, env=environment(folder)))
    for process in running:
        ended(process)
    return time.monotonic() - began


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that must succeed."""
    if process.wait(PATIENCE):
        raise SystemExit("error: a process could not import the modules: this run counts for nothing")


def imports(processes: int) -> float:
    """Return the faster of two ways to start so many processes."""
    with place(1) as folder:
        separate(folder, 1, 1)
        return min(separate(folder, processes, at_a_time) for at_a_time in (os.cpu_count() or 1, processes))


def main() -> int:
    """Alternate the two; print times, their ratio, and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20 workers, one pair, no bounds")
    given = parser.parse_args()
    workers, pairs = (20, 1) if given.quick else (given.workers, given.pairs)
    ratios, private = [], []
    for pair in range(pairs):
        ours, theirs = fleet(workers), imports(workers)
        ratios.append(ours.seconds / theirs)
        private += ours.private_mb
        print(
            f"pair {pair + 1}: {workers} workers ready in {ours.seconds:.2f} s, "
            f"{workers} processes in {theirs:.2f} s, ratio 1/{1 / ratios[-1]:.1f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"ratio 1/{1 / ratio:.1f} (median), bound 1/{1 / MAX_RATIO:.0f}")
    print(f"private memory {max(private):.1f} MiB at most, {statistics.median(private):.1f} MiB median, bound 8 MiB")
    return 0 if given.quick or (ratio <= MAX_RATIO and max(private) <= MAX_PRIVATE_MB) else 1


if __name__ == "__main__":
    sys.exit(main())
