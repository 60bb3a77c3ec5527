"""The floors: raw `sqlite3` loops that finish the previous row and claim the next in one commit, and do nothing else.

F1 has a table of its own, as small as a queue with results can be. F1s does the same on Fleet's schema, with the
columns that Fleet writes. Both: WAL, synchronous=NORMAL, and sqlite3's own busy handler.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks import ours
from benchmarks.contestants import Run, count, file_bytes, run_of
from benchmarks.crew import Performed, once_each, processes
from benchmarks.processes import Invalid

BARE_SCHEMA = (
    "CREATE TABLE task (id INTEGER PRIMARY KEY, status TEXT NOT NULL, payload TEXT, worker INTEGER, result TEXT)",
    "CREATE INDEX waiting ON task (id) WHERE status = 'pending'",
)
BARE_INSERT = "INSERT INTO task (status, payload) VALUES ('pending', ?)"


class Statements(NamedTuple):
    """The two statements of a loop."""

    claim: str
    finish: str


BARE = Statements(
    claim="""
UPDATE task SET status = 'running', worker = :worker
WHERE id = (SELECT id FROM task WHERE status = 'pending' ORDER BY id LIMIT 1) RETURNING id, 0
""",
    finish="UPDATE task SET status = 'done', result = 'null' WHERE id = ? AND ? = 0",
)
OURS = Statements(
    claim="""
UPDATE work_queue SET status = 'running', worker = :worker, incarnation = :worker, claim_token = claim_token + 1,
    attempt = attempt + 1, claimed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = (SELECT id FROM work_queue WHERE status = 'pending' AND lane_id = 1 ORDER BY rank, id LIMIT 1)
RETURNING id, claim_token, payload_json
""",
    finish="""
UPDATE work_queue SET status = 'done', result_json = 'null', finished_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = ? AND claim_token = ? AND status = 'running'
""",
)


def connect(database: Path) -> sqlite3.Connection:
    """Open a database as the floors' workers do."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def loop(database: Path, statements: Statements, worker: int, perform: Callable[[int], object]) -> None:
    """Do tasks until there are none; each is performed by its number."""
    connection = connect(database)
    held: tuple[int, int] | None = None
    while True:
        connection.execute("BEGIN IMMEDIATE")
        if held:
            connection.execute(statements.finish, held)
        row = connection.execute(statements.claim, {"worker": worker}).fetchone()
        connection.execute("COMMIT")
        if row is None:
            return
        held = (row[0], row[1])
        perform(row[0])


def _raced(database: Path, statements: Statements, workers: int, seconds: float) -> Sequence[Performed]:
    return processes(lambda worker, perform: loop(database, statements, worker, perform), workers, seconds)


def fill_bare(database: Path, tasks: int) -> int:
    """Make F1's database with so many tasks; return its size in bytes before they came."""
    with closing(connect(database)) as connection:
        for statement in BARE_SCHEMA:
            connection.execute(statement)
        empty = file_bytes(database)
        connection.execute("BEGIN")
        connection.executemany(BARE_INSERT, (("{}",) for _ in range(tasks)))
        connection.execute("COMMIT")
    return empty


class BareFloor:
    """F1."""

    name = "F1: raw loop, bare table"
    settings = "WAL, synchronous=NORMAL; processes, one row a commit; result stored"
    share = 1.0

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = folder / "bare.db"
        empty = fill_bare(database, tasks)
        performed = _raced(database, BARE, workers, seconds)
        once_each(performed, tasks)
        done = count(database, "SELECT count(*) FROM task WHERE status = 'done' AND result IS NOT NULL")
        if done != tasks:
            raise Invalid(f"{done} of {tasks} tasks done")
        return run_of(performed, (file_bytes(database) - empty) / tasks)


class SchemaFloor:
    """F1s."""

    name = "F1s: raw loop, Fleet's tables"
    settings = "WAL, synchronous=NORMAL; processes, one row a commit; result stored"
    share = 0.5

    def run(self, folder: Path, tasks: int, workers: int, seconds: float) -> Run:
        """Do the tasks."""
        database = folder / "fleet.db"
        empty = ours.created(database)
        ours.fill(database, tasks, 0.0)
        performed = _raced(database, OURS, workers, seconds)
        once_each(performed, tasks)
        ours.check(database, tasks)
        return run_of(performed, (file_bytes(database) - empty) / tasks)
