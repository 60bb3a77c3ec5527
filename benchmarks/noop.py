"""No-op tasks per second: Fleet's real workers against a raw `sqlite3` loop on the same schema.

The floor finishes the previous row and claims the next in one commit, with as many processes, the same durability and
the same rows, and does nothing else: no handler, no registry, no fence check by a library. Both are timed by what the
rows say (first claim to last finish), so process start counts for neither. Runs alternate; the ratio is of medians.

Usage: noop.py [--tasks N] [--workers N] [--runs N] [--prefetch N|auto]
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.synchronize
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

CLAIM = """
UPDATE work_queue SET status = 'running', worker = :worker, incarnation = :worker, claim_token = claim_token + 1,
    attempt = attempt + 1, claimed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = (SELECT id FROM work_queue WHERE status = 'pending' AND lane_id = 1 ORDER BY rank, id LIMIT 1)
RETURNING id, claim_token, payload_json
"""
FINISH = """
UPDATE work_queue SET status = 'done', result_json = 'null', finished_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ? AND claim_token = ? AND status = 'running'
"""


def connect(database: Path) -> sqlite3.Connection:
    """Open the database as the floor's workers do."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def filled(folder: Path, tasks: int) -> Path:
    """Return a fresh database with so many waiting no-op tasks."""
    database = folder / "fleet.db"
    enqueue = [sys.executable, "-m", "fleet", "enqueue", "fleet.noop", "--count", str(tasks), "--json"]
    subprocess.run([*enqueue, "--db-path", str(database)], check=True, stdout=subprocess.DEVNULL)
    return database


def rate(database: Path, tasks: int) -> float:
    """Return tasks per second, from the rows; refuse a run that lost or repeated one."""
    connection = connect(database)
    done, attempts, first, last = connection.execute(
        "SELECT count(*), sum(attempt), min(claimed_at), max(finished_at) FROM work_queue WHERE status = 'done'"
    ).fetchone()
    connection.close()
    if done != tasks or attempts != tasks:
        raise SystemExit(f"error: {done} of {tasks} tasks done in {attempts} attempts: this run counts for nothing")
    return tasks / (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def fleet(tasks: int, workers: int, prefetch: str) -> float:
    """Run Fleet's own workers until the queue is empty."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        database = filled(Path(folder), tasks)
        command = [sys.executable, "-m", "fleet.cli.worker", "--db-path", str(database), "--until-empty"]
        command += ["--processes", str(workers), "--prefetch", prefetch]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return rate(database, tasks)


def _loop(database: Path, worker: str, ready: multiprocessing.synchronize.Barrier) -> None:
    connection = connect(database)
    held: tuple[int, int] | None = None
    ready.wait()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        if held:
            connection.execute(FINISH, held)
        row = connection.execute(CLAIM, {"worker": worker}).fetchone()
        connection.execute("COMMIT")
        if row is None:
            return
        held = (row[0], row[1])


def floor(tasks: int, workers: int) -> float:
    """Run the raw loop."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        database = filled(Path(folder), tasks)
        context = multiprocessing.get_context("fork")
        ready = context.Barrier(workers)
        processes = [context.Process(target=_loop, args=(database, f"raw-{n}", ready)) for n in range(workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        return rate(database, tasks)


def main() -> None:
    """Alternate the two, and print rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prefetch", default="auto")
    given = parser.parse_args()
    ours, raw = [], []
    for run in range(given.runs):
        raw.append(floor(given.tasks, given.workers))
        ours.append(fleet(given.tasks, given.workers, given.prefetch))
        print(
            f"run {run + 1}: raw loop {raw[-1]:.0f}/s, fleet {ours[-1]:.0f}/s, ratio {ours[-1] / raw[-1]:.2f}",
            flush=True,
        )
    ratio = statistics.median(ours) / statistics.median(raw)
    print(
        f"{given.tasks} no-op tasks, {given.workers} workers, prefetch {given.prefetch}: fleet "
        f"{statistics.median(ours):.0f}/s, raw loop {statistics.median(raw):.0f}/s (medians), ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
