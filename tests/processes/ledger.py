"""An account of every task that the product does not write: the database's own triggers, and the handlers' lines."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet.storage.times import stamp
from tests.processes.procfs import Identity
from tests.processes.stranger import connected, is_url

_TABLE = """
CREATE TABLE test_ledger (seq INTEGER PRIMARY KEY, task INTEGER, was TEXT, became TEXT, token INTEGER,
    attempt INTEGER, worker TEXT, incarnation TEXT, at REAL);
CREATE TRIGGER test_ledger_writes AFTER UPDATE OF status ON work_queue BEGIN
    INSERT INTO test_ledger (task, was, became, token, attempt, worker, incarnation, at)
    VALUES (NEW.id, OLD.status, NEW.status, NEW.claim_token, NEW.attempt, coalesce(NEW.worker, OLD.worker),
        coalesce(NEW.incarnation, OLD.incarnation), (julianday('now') - 2440587.5) * 86400);
END;
"""
_TABLE_ON_A_SERVER = """
CREATE TABLE test_ledger (seq bigint GENERATED ALWAYS AS IDENTITY, task bigint, was text, became text, token bigint,
    attempt integer, worker text, incarnation text, at double precision);
CREATE FUNCTION test_ledger_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test_ledger (task, was, became, token, attempt, worker, incarnation, at)
    VALUES (NEW.id, OLD.status, NEW.status, NEW.claim_token, NEW.attempt, coalesce(NEW.worker, OLD.worker),
        coalesce(NEW.incarnation, OLD.incarnation), extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER test_ledger_writes AFTER UPDATE OF status ON work_queue
    FOR EACH ROW EXECUTE FUNCTION test_ledger_note();
"""


@dataclass(frozen=True)
class Execution:
    """One line that a handler left."""

    task: int
    attempt: int
    token: int
    pid: int
    ticks: int
    run: str

    @property
    def process(self) -> Identity:
        """Who executed."""
        return self.pid, self.ticks


class Ledger:
    """Reads a test's database and lines with nothing but the database's driver.

    Args:
        location: the file, or the server's URL.
        lines: where handlers leave lines.
    """

    def __init__(self, location: str, lines: Path) -> None:
        self._location = location
        self._lines = lines

    def begin(self) -> None:
        """Have the database itself write down every change of a task's status."""
        if is_url(self._location):
            self.write(_TABLE_ON_A_SERVER)
            return
        connection = sqlite3.connect(self._location, timeout=30)
        connection.executescript(_TABLE)
        connection.close()

    def write(self, sql: str, *values: Any) -> None:
        """Run one statement as a stranger would."""
        with connected(self._location) as stranger:
            stranger.rows(sql, values)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        with connected(self._location, read_only=True) as stranger:
            return stranger.rows(sql, values)

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row; None when there is none."""
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, in order."""
        if is_url(self._location):
            sql = "SELECT column_name FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position"
        else:
            sql = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
        return [name for (name,) in self.rows(sql, table)]

    def seconds(self, sql: str) -> list[float]:
        """Return the differences in seconds of the two times in each row that a query finds."""
        return [
            (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
            for later, earlier in self.rows(sql)
        ]

    def lease_is_over(self) -> bool:
        """Return whether a worker's lease is over."""
        now = stamp(datetime.now(UTC))
        return bool(self.value("SELECT count(*) FROM worker_registry WHERE lease_expires_at < ?", now))

    def check_sound(self) -> None:
        """Check the file; what a server keeps is checked by the server."""
        assert is_url(self._location) or self.value("PRAGMA integrity_check") == "ok"

    def executions(self, task: int | None = None) -> list[Execution]:
        """Return the lines that handlers left, in order."""
        if not self._lines.exists():
            return []
        # The last line may be one that is just being written.
        complete, _, _ = self._lines.read_text().rpartition("\n")
        lines = [Execution(**json.loads(line)) for line in complete.splitlines()]
        return [line for line in lines if task is None or line.task == task]

    def accepted(self) -> Counter[int]:
        """Return how often each task came to its end."""
        return Counter(task for (task,) in self.rows("SELECT task FROM test_ledger WHERE became IN ('done', 'failed')"))

    def check_done_once(self, tasks: Collection[int]) -> None:
        """Check that each task came to its end once, and that what is stored is what that execution returned."""
        runs: defaultdict[int, dict[str, Execution]] = defaultdict(dict)
        for line in self.executions():
            runs[line.task][line.run] = line
        stored = {task: row for task, *row in self.rows("SELECT id, status, claim_token, result_json FROM work_queue")}
        unfinished = {task: stored[task] for task in tasks if stored[task][0] != "done"}
        assert not unfinished, f"not done: {unfinished}"
        accepted = self.accepted()
        assert {task: accepted[task] for task in tasks if accepted[task] != 1} == {}, "accepted not exactly once"
        for task in tasks:
            _, token, result = stored[task]
            execution = runs[task].get(json.loads(result)["run"])
            assert execution is not None, f"task {task}: nobody executed what is stored as its result"
            assert execution.token == token, f"task {task}: the result of claim {execution.token} stands under {token}"

    def check_executed_once(self, tasks: Collection[int]) -> None:
        """Check that each task was executed once, at its first claim, and came to its end with that."""
        self.check_done_once(tasks)
        wanted = set(tasks)
        executions = [line for line in self.executions() if line.task in wanted]
        counts = Counter(line.task for line in executions)
        assert {task: count for task, count in counts.items() if count != 1} == {}, "not executed exactly once"
        assert {line.task: line.attempt for line in executions if line.attempt != 1} == {}

    def repeated_by(self) -> Iterable[tuple[int, Execution]]:
        """Yield (task, execution) for each execution whose result was not the one that was stored."""
        results = {
            task: json.loads(result)["run"]
            for task, result in self.rows("SELECT id, result_json FROM work_queue WHERE result_json IS NOT NULL")
        }
        for line in self.executions():
            if line.run != results.get(line.task):
                yield line.task, line
