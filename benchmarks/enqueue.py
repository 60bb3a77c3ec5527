"""Enqueuing: in bulk against raw `executemany`, one by one against other queues on SQLite, and beside a busy fleet.

All sides write with the write-ahead log and synchronous=FULL, and each commit of one is a commit of the others: `bulk`
is one transaction, `single` one for each task. Sides take turns, and ratios are of medians.

Usage: enqueue.py [--tasks N] [--singles N] [--rounds N] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from fleet import Fleet
from fleet.config import locate
from fleet.domain.alike import TasksAlike
from fleet.domain.task import NewTask
from fleet.wiring import open_storage

BULK_OF_BARE, BULK_OF_OURS, SINGLE, WAIT_MS = 0.4, 2.0, 1.0, 50.0
BLOCK = 50
"""Single tasks that one side enqueues before it is another's turn."""
BACKLOG, BACKLOG_EACH = 60_000, 400
"""What the fleet is given to do, and how much more for each single task that is enqueued beside it."""

Rates = dict[str, float]
Seconds = Callable[[Path, Sequence[Mapping[str, Any]]], float]


def payload(number: int) -> dict[str, Any]:
    """Return the arguments of a task, small as most are."""
    return {"n": number, "path": f"images/cat-{number}.png"}


def texts(payloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return payloads as the JSON that is stored."""
    return [json.dumps(one, separators=(",", ":")) for one in payloads]


def connect(path: Path) -> sqlite3.Connection:
    """Open a database as a program without Fleet would, for durable commits."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _timed_many(connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> float:
    began = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(sql, rows)
    connection.execute("COMMIT")
    return time.perf_counter() - began


def bare(path: Path, payloads: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of an executemany into a table of id, payload and status, with an index over the status."""
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, payload TEXT, status TEXT)")
        connection.execute("CREATE INDEX bare_status ON bare (status)")
        rows = [(text, "pending") for text in texts(payloads)]
        return _timed_many(connection, "INSERT INTO bare (payload, status) VALUES (?, ?)", rows)


def encoded_bare(path: Path, payloads: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of `bare` when the payloads are still to be made JSON, as they are for `enqueue_many`."""
    began = time.perf_counter()
    texts(payloads)
    return time.perf_counter() - began + bare(path, payloads)


def ours(path: Path, payloads: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of an executemany into `work_queue` that binds every column that our enqueue writes."""
    open_storage(locate(str(path)), create=True).close()
    at = "2026-01-01T00:00:00.000Z"
    names = "id, lane_id, queue, task, status, rank, priority, created_at, max_attempts, payload_json"
    rows = [
        (number, 1, "default", "work", "pending", 0, 0, at, 3, text)
        for number, text in enumerate(texts(payloads), start=1)
    ]
    with closing(connect(path)) as connection:
        connection.execute("INSERT INTO claim_lane (queue, task, created_at) VALUES ('default', 'work', ?)", [at])
        places = ", ".join("?" * len(names.split(",")))
        return _timed_many(connection, f"INSERT INTO work_queue ({names}) VALUES ({places})", rows)


def stored(path: Path, payloads: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds in which our queue stores tasks whose payloads are JSON already."""
    alike = texts(payloads)
    with closing(open_storage(locate(str(path)), create=True)) as storage:
        began = time.perf_counter()
        done = storage.queue.enqueue(TasksAlike(NewTask("work"), alike))
        taken = time.perf_counter() - began
    _check(path, len(payloads), len(done.ids))
    return taken


def enqueued(path: Path, payloads: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of `enqueue_many`: checked, made JSON, stored, a handle for each."""
    open_storage(locate(str(path)), create=True).close()
    with closing(Fleet(path)) as app:
        app.storage()
        began = time.perf_counter()
        handles = app.enqueue_many("work", payloads)
        taken = time.perf_counter() - began
    _check(path, len(payloads), len(handles))
    return taken


def _check(path: Path, wanted: int, told: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute("SELECT count(*) FROM work_queue WHERE status = 'pending'").fetchone()
    if (found, told) != (wanted, wanted):
        raise SystemExit(f"error: {found} of {wanted} tasks were stored: this run counts for nothing")


BULK: Mapping[str, Seconds] = {
    "bare": bare,
    "encoded bare": encoded_bare,
    "ours": ours,
    "stored": stored,
    "enqueue_many": enqueued,
}


def bulk(tasks: int, rounds: int = 5) -> Rates:
    """Return tasks per second of each way to add so many in one transaction."""
    payloads = [payload(number) for number in range(tasks)]
    seconds: dict[str, list[float]] = {name: [] for name in BULK}
    for _ in range(rounds):
        for name, side in BULK.items():
            with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
                seconds[name].append(side(Path(folder) / "queue.db", payloads))
    return {name: tasks / statistics.median(taken) for name, taken in seconds.items()}


def _fleet(folder: Path) -> Callable[[int], Any]:
    path = folder / "fleet.db"
    open_storage(locate(str(path)), create=True).close()
    app = Fleet(path)

    @app.task
    def work(n: int, path: str) -> None: ...

    app.storage()
    return lambda number: work.enqueue(**payload(number))


def _huey(folder: Path) -> Callable[[int], Any]:
    from huey import SqliteHuey

    queue = SqliteHuey(filename=str(folder / "huey.db"), fsync=True)

    @queue.task()
    def work(n: int, path: str) -> None: ...

    return lambda number: work(**payload(number))


def _litequeue(folder: Path) -> Callable[[int], Any]:
    from litequeue import LiteQueue

    queue = LiteQueue(str(folder / "lite.db"))
    queue.conn.execute("PRAGMA synchronous=FULL")
    return lambda number: queue.put(json.dumps(payload(number)))


def _persist_queue(folder: Path) -> Callable[[int], Any]:
    from persistqueue import SQLiteQueue

    # The write-ahead log, and synchronous as SQLite has it: FULL.
    queue = SQLiteQueue(str(folder / "persist"), auto_commit=True)
    return lambda number: queue.put(payload(number))


def _raw(folder: Path) -> Callable[[int], Any]:
    connection = connect(folder / "raw.db")
    connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, payload TEXT, status TEXT)")
    connection.execute("CREATE INDEX bare_status ON bare (status)")
    insert = "INSERT INTO bare (payload, status) VALUES (?, 'pending')"
    return lambda number: connection.execute(insert, [json.dumps(payload(number))])


PEERS = {"huey": _huey, "litequeue": _litequeue, "persist-queue": _persist_queue}
SINGLES = {"fleet": _fleet, **PEERS, "raw": _raw}


def single(tasks: int) -> Rates:
    """Return tasks per second, one commit each, of every queue that is installed, and of a raw insert."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        sides = {}
        for side, make in SINGLES.items():
            with suppress(ImportError):
                sides[side] = make(Path(name))
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for first in range(0, tasks, BLOCK):
            for side, enqueue in sides.items():
                seconds[side].append(_block(enqueue, range(first, min(first + BLOCK, tasks))))
    # The first block of each is a warm-up.
    return {side: BLOCK / statistics.median(taken[1:] or taken) for side, taken in seconds.items()}


def _block(enqueue: Callable[[int], Any], numbers: range) -> float:
    began = time.perf_counter()
    for number in numbers:
        enqueue(number)
    return (time.perf_counter() - began) * BLOCK / len(numbers)


def beside_busy(singles: int = 1_000, pause: float = 0.004) -> dict[str, float]:
    """Return how long single enqueues take beside four workers that execute no-op tasks: milliseconds by quantile.

    Raises:
        SystemExit: the workers had nothing left to do before the last of them, so that it was not beside a busy fleet.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as name:
        path = Path(name) / "fleet.db"
        with closing(open_storage(locate(str(path)), create=True)) as storage, closing(Fleet(path)) as app:
            storage.queue.enqueue(TasksAlike(NewTask("fleet.noop"), ["{}"] * (BACKLOG + singles * BACKLOG_EACH)))
            command = [sys.executable, "-m", "fleet.cli.worker", "--db-path", str(path), "--processes", "4"]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as fleet:
                try:
                    waits = _waits(app, storage, singles, pause)
                    left = storage.queue.open_totals()["pending"]
                finally:
                    fleet.terminate()
        if left == 0:
            raise SystemExit("error: the fleet had nothing left to do: this run counts for nothing; raise BACKLOG")
    cuts = statistics.quantiles(waits, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "max": max(waits)}


def _waits(app: Fleet, storage: Any, singles: int, pause: float) -> list[float]:
    app.storage()
    deadline = time.monotonic() + 30
    while storage.queue.open_totals().get("running", 0) == 0:
        if time.monotonic() > deadline:
            raise SystemExit("error: no worker began")
        time.sleep(0.01)
    waits = []
    for _ in range(singles):
        began = time.perf_counter()
        app.enqueue("fleet.noop")
        waits.append((time.perf_counter() - began) * 1_000)
        time.sleep(pause)
    return waits


def main() -> int:
    """Run everything; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--singles", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="little of everything, and no goals")
    given = parser.parse_args()
    if given.quick:
        given.tasks, given.singles, given.rounds = 2_000, 2 * BLOCK, 2
    met = [_tell_bulk(given.tasks, given.rounds), _tell_single(given.singles), _tell_busy(given.singles)]
    return 0 if given.quick or all(met) else 1


def _tell_bulk(tasks: int, rounds: int) -> bool:
    rates = bulk(tasks, rounds)
    of_bare, of_ours = rates["stored"] / rates["bare"], rates["stored"] / rates["ours"]
    whole = rates["enqueue_many"] / rates["encoded bare"]
    print(f"bulk of {tasks}: {of_bare:.2f} of executemany into a bare table (goal {BULK_OF_BARE:.2f})")
    print(f"bulk of {tasks}: {of_ours:.2f} times executemany into ours (goal {BULK_OF_OURS:.2f})")
    print(f"bulk of {tasks}: enqueue_many {whole:.2f} of json.dumps and executemany into a bare table (no goal)")
    return of_bare >= BULK_OF_BARE and of_ours >= BULK_OF_OURS


def _tell_single(tasks: int) -> bool:
    rates = single(tasks)
    for side in rates.keys() - {"fleet"}:
        print(f"single: {rates['fleet'] / rates[side]:.2f} times {side}")
    fastest = max((rates[side] for side in PEERS if side in rates), default=0.0)
    return rates["fleet"] >= SINGLE * fastest


def _tell_busy(singles: int) -> bool:
    waits = beside_busy(singles)
    told = ", ".join(f"{name} {value:.1f} ms" for name, value in waits.items())
    print(f"single beside 4 busy workers: {told} (goal p99 {WAIT_MS:.0f} ms)")
    return waits["p99"] <= WAIT_MS


if __name__ == "__main__":
    sys.exit(main())
