"""What a claim costs beside a million rows that are none of its business, against an empty table, in one run.

Each situation is a database of its own. Rounds alternate between all of them; a round claims and finishes so many tasks
one by one through Fleet's own storage. Printed is the median of each situation's rounds, and its ratio to the median
of the empty table; the run fails when a ratio is above the bound. Bulk rows are written by plain SQL.

Usage: flat_cost.py [--rows N] [--rounds N] [--cycles N] [--quick]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.config import locate
from fleet.domain.execution import Claimant, Finish
from fleet.domain.lanes import LaneClaim
from fleet.domain.limits import Limit
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask, TaskStatus
from fleet.domain.worker import WorkerRegistration
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

BOUND = 1.3
SATURATED = 200_000
FINISHED_TIMES = 5
LARGE_PAYLOAD = '{"text":"' + "x" * 100_000 + '"}'

FILL = """
INSERT INTO work_queue (lane_id, queue, task, payload_json, status, rank, priority, available_at, created_at,
    finished_at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
SELECT l.lane_id, l.queue, l.task, '{}', :status, :rank, -:rank, :available_at, '2026-01-01T00:00:00.000Z',
    :finished_at
FROM n, claim_lane l WHERE l.lane_id = (SELECT max(lane_id) FROM claim_lane)
"""


@dataclass
class Situation:
    """A database, and the worker that is measured in it."""

    name: str
    storage: Storage
    claimant: Claimant
    lanes: Sequence[LaneClaim]
    microseconds: list[float]

    def round(self, cycles: int) -> None:
        """Claim and finish so many tasks one by one."""
        queue = self.storage.queue
        finishes: list[Finish] = []
        began = time.perf_counter()
        for _ in range(cycles):
            [task] = queue.finish_and_claim(self.claimant, finishes, self.lanes, 1).tasks
            finishes = [Finish(task.fence, TaskStatus.DONE, result_json="1")]
        queue.finish_and_claim(self.claimant, finishes, (), 0)
        self.microseconds.append((time.perf_counter() - began) / cycles * 1e6)

    @property
    def median(self) -> float:
        """Microseconds of one cycle."""
        return statistics.median(self.microseconds)


class Bench:
    """Makes databases in a folder.

    Args:
        folder: where.
        rows: how many rows a million stands for.
        waiting: tasks to claim in each.
    """

    def __init__(self, folder: Path, rows: int, waiting: int) -> None:
        self.folder = folder
        self.rows = rows
        self.waiting = waiting

    def situation(
        self,
        name: str,
        prepare: Callable[[Storage, Path], None] = lambda storage, path: None,
        tasks: Callable[[int], NewTask] = lambda number: NewTask("work"),
    ) -> Situation:
        """Return a database that was prepared, with tasks for its worker to claim."""
        path = self.folder / f"{name.replace(' ', '-')}.db"
        storage = open_storage(locate(str(path)), create=True)
        prepare(storage, path)
        storage.queue.enqueue([tasks(number) for number in range(self.waiting)])
        served = [lane for lane in storage.queue.lanes() if lane.task.startswith("work") and not lane.requires]
        lanes = [(lane.lane_id, 0, 0) for lane in served]
        return Situation(name, storage, register(storage, "measured"), lanes, [])

    def rows_of(
        self, task: NewTask, rows: int, status: str = "pending", rank: int = 0
    ) -> Callable[[Storage, Path], None]:
        """Return what fills a database with rows like one task."""

        def fill(storage: Storage, path: Path) -> None:
            storage.queue.enqueue([task])
            with sqlite3.connect(path) as connection:
                connection.execute(
                    FILL,
                    {
                        "rows": rows,
                        "status": status,
                        "rank": rank,
                        "available_at": "2099-01-01T00:00:00.000Z" if status == "scheduled" else None,
                        "finished_at": "2026-01-01T00:00:00.000Z" if status == "done" else None,
                    },
                )
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()

        return fill


def register(storage: Storage, name: str) -> Claimant:
    """Register a worker whose lease outlasts the run."""
    registration = WorkerRegistration(
        worker_id=name,
        incarnation=f"{name}-life",
        pool="default",
        process=ProcessIdentity(),
        heartbeat_seconds=3_600.0,
        lease_seconds=36_000.0,
        handlers=("work",),
    )
    storage.registry.register(registration, lambda _: False)
    return Claimant(name, f"{name}-life", 36_000.0)


def saturated(rows: int) -> Callable[[Storage, Path], None]:
    """Return what puts tasks of one key, whose only slot is taken, at the head of the queue."""

    def fill(storage: Storage, path: Path) -> None:
        storage.rules.set_limit(Limit("key", max_running=1))
        for first in range(0, rows, 50_000):
            count = min(50_000, rows - first)
            storage.queue.enqueue([NewTask("work", concurrency_key="key", priority=9)] * count)
        lanes = [(lane.lane_id, 0, 0) for lane in storage.queue.lanes()]
        if not storage.queue.claim(register(storage, "holder"), lanes, 1).tasks:
            raise SystemExit("error: the key's slot could not be taken: this run counts for nothing")

    return fill


def situations(bench: Bench) -> list[Situation]:
    """Return every situation, the empty table first."""
    rows = bench.rows
    kinds = [(f"work{handler}", f"queue{queue}") for handler in range(20) for queue in range(3)]
    return [
        bench.situation("empty"),
        bench.situation("pending in another queue", bench.rows_of(NewTask("other", queue="other"), rows)),
        bench.situation("pending for others' capabilities", bench.rows_of(NewTask("work", requires={"gpu": 1}), rows)),
        bench.situation("pending for a handler it lacks", bench.rows_of(NewTask("lacking"), rows)),
        bench.situation(
            "future of higher priority", bench.rows_of(NewTask("work", delay=9e7), rows, "scheduled", rank=-100)
        ),
        bench.situation("a saturated key at the head", saturated(min(SATURATED, rows))),
        bench.situation("finished", bench.rows_of(NewTask("past"), rows * FINISHED_TIMES, "done")),
        bench.situation("payloads of 100 KB", tasks=lambda number: NewTask("work", payload_json=LARGE_PAYLOAD)),
        bench.situation(
            "20 handlers in 3 queues",
            tasks=lambda number: NewTask(kinds[number % 60][0], queue=kinds[number % 60][1]),
        ),
    ]


UNBOUNDED = ("20 handlers in 3 queues",)


def enqueue_ratio(folder: Path, tasks: int) -> float:
    """Return how many times as long as a raw executemany of the same rows one enqueue takes (medians of 3)."""
    ours, raw = [], []
    for run in range(3):
        path = folder / f"enqueue-{run}.db"
        storage = open_storage(locate(str(path)), create=True)
        new = [NewTask("work", payload_json=f'{{"n":{number}}}') for number in range(tasks)]
        began = time.perf_counter()
        storage.queue.enqueue(new)
        ours.append(time.perf_counter() - began)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        cursor = connection.execute("SELECT * FROM work_queue")
        names = [column[0] for column in cursor.description]
        found = list(cursor)
        # The floor binds what has a value in some row, and nothing else.
        kept = [place for place in range(len(names)) if any(row[place] is not None for row in found)]
        names = [names[place] for place in kept]
        rows = [(tasks + row[kept[0]], *(row[place] for place in kept[1:])) for row in found]
        places = ", ".join("?" * len(names))
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO work_queue ({', '.join(names)}) VALUES ({places})", rows)
        connection.execute("COMMIT")
        raw.append(time.perf_counter() - began)
        connection.close()
        storage.close()
    return statistics.median(ours) / statistics.median(raw)


def fan(folder: Path, width: int) -> tuple[float, float]:
    """Return the seconds in which a parent's children are all let go, and in which a child's parents all end."""
    storage = open_storage(locate(str(folder / "fan.db")), create=True)
    who = register(storage, "measured")
    [parent] = storage.queue.enqueue([NewTask("work")]).ids
    storage.queue.enqueue([NewTask("child", depends_on=(parent,))] * width)
    began = time.perf_counter()
    _finish_all(storage, who)
    while storage.queue.advance():
        continue
    out = time.perf_counter() - began
    if storage.queue.open_totals()["pending"] != width:
        raise SystemExit("error: not all children were let go")
    parents = storage.queue.enqueue([NewTask("work")] * width).ids
    [child] = storage.queue.enqueue([NewTask("last", depends_on=tuple(parents))]).ids
    began = time.perf_counter()
    _finish_all(storage, who)
    into = time.perf_counter() - began
    record = storage.queue.get(child)
    if record is None or record.status is not TaskStatus.PENDING:
        raise SystemExit("error: the last child was not let go")
    storage.close()
    return out, into


def _finish_all(storage: Storage, who: Claimant) -> None:
    lanes = [(lane.lane_id, 0, 0) for lane in storage.queue.lanes() if lane.task == "work"]
    finishes: list[Finish] = []
    while True:
        tasks = storage.queue.finish_and_claim(who, finishes, lanes, 100).tasks
        finishes = [Finish(task.fence, TaskStatus.DONE) for task in tasks]
        if not tasks:
            return


def status_seconds(path: Path) -> float:
    """Return how much longer `fleet status` takes than starting the same command does (medians of 5)."""

    def run(*arguments: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fleet", *arguments], check=False, capture_output=True)
        return time.perf_counter() - began

    status = [run("status", "--db-path", str(path)) for _ in range(5)]
    start = [run("tasks", "--limit", "1", "--db-path", str(path)) for _ in range(5)]
    return statistics.median(status) - statistics.median(start)


def main() -> int:
    """Run everything; return 1 when a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of everything, and no bounds")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.rounds, given.cycles = 20_000, 3, 60
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        folder = Path(name)
        exceeded = _claims(folder, given.rows, given.rounds, given.cycles)
        ratio = enqueue_ratio(folder, max(1_000, given.rows // 10))
        print(
            f"enqueue of {max(1_000, given.rows // 10)} in one call: {ratio:.2f} times a raw executemany (bound 2.00)"
        )
        out, into = fan(folder, max(500, given.rows // 50))
        print(f"{max(500, given.rows // 50)} children of one parent: {out:.2f} s; parents of one child: {into:.2f} s")
        return 0 if given.quick else int(exceeded or ratio > 2.0)


def _claims(folder: Path, rows: int, rounds: int, cycles: int) -> bool:
    all_of_them = situations(Bench(folder, rows, rounds * cycles))
    for _ in range(rounds):
        for one in all_of_them:
            one.round(cycles)
    empty = all_of_them[0].median
    exceeded = False
    for one in all_of_them:
        ratio = one.median / empty
        bounded = one.name not in UNBOUNDED
        exceeded = exceeded or (bounded and ratio > BOUND)
        print(f"{one.name:36} {one.median:7.1f} us  ratio {ratio:.2f}{'' if bounded else '  (no bound)'}", flush=True)
        one.storage.close()
    for name in ("future-of-higher-priority", "finished"):
        seconds = status_seconds(folder / f"{name}.db")
        print(f"fleet status, {name.replace('-', ' ')}: {seconds:.3f} s beyond the start of a command (bound 0.300)")
        exceeded = exceeded or seconds > 0.3
    return exceeded


if __name__ == "__main__":
    sys.exit(main())
