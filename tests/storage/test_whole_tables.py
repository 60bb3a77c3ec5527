"""What each verb costs beside a long history and a long backlog: its statements read indexes, never whole tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Runner, Statement
from fleet.storage.times import stamp
from tests.storage.samples import (
    all_lanes,
    beat,
    claim,
    claim_one,
    enqueue,
    enqueue_one,
    everybody,
    execute,
    failure,
    finish,
    join,
    nobody,
    running_task,
    success,
)

ROWS = 3_000
WHOLE = r"(?:pk_|sqlite_autoindex_|ix_work_dependency|ix_work_queue_batch\b)"
"""Indexes that hold every row of their table."""
LARGE = ("work_queue", "work_dependency", "work_payload", "work_step", "work_attempt")


@dataclass
class Plans:
    """The plans of the statements that a store has executed.

    Attributes:
        store: the store, filled.
        seen: statements with the values that they were given first.
    """

    store: Storage
    seen: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def note(self, runner: Runner, statement: Statement, values: dict[str, Any]) -> None:
        """Remember a statement that is about to be executed."""
        sql, order = statement.compiled(runner.connection.dialect)
        given: Any = values if order is None else [_written(values[name]) for name in order]
        self.seen.setdefault(sql, (sql, given))

    def explained(self) -> list[tuple[str, list[str]]]:
        """Return each statement with the steps of its plan."""
        found = []
        with self.store.transaction() as transaction:
            cursor = transaction.connection.connection.dbapi_connection.cursor()
            word = "EXPLAIN QUERY PLAN"
            if transaction.connection.dialect.name == "postgresql":
                word = "EXPLAIN"
                # Of so few rows PostgreSQL may well read all: the question is whether an index could serve.
                for way in ("seqscan", "hashjoin", "mergejoin"):
                    cursor.execute(f"SET LOCAL enable_{way} = off")
            for sql, given in self.seen.values():
                if sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")):
                    cursor.execute(f"{word} {sql}", given)
                    found.append((sql, [str(step[-1]) for step in cursor.fetchall()]))
        return found

    def reading_whole_tables(self) -> list[tuple[str, str]]:
        """Return (step, statement) of each step of a plan that reads a large table without an index of it."""
        return [
            (step, sql)
            for sql, steps in self.explained()
            for step, following in pairwise([*steps, ""])
            if _reads_all(step, following, sql)
        ]


def _written(value: Any) -> Any:
    return stamp(value) if hasattr(value, "isoformat") else value


def _reads_all(step: str, condition: str, sql: str) -> bool:
    """Return whether a step of a plan reads all rows of a large table, or all of an index that holds every row."""
    match = re.search(r"Seq Scan on (\w+)", step) or re.match(
        r"SCAN (\w+)(?! VIRTUAL)(?! USING (COVERING )?INDEX)", step
    )
    whole = re.match(rf"SCAN (\w+) USING (COVERING )?INDEX {WHOLE}", step) or (
        re.search(rf"Index (?:Only )?Scan (?:Backward )?using {WHOLE}\w* on (\w+)", step)
        if "Index Cond" not in condition
        else None
    )
    match = match or whole
    if match is None or "ORDER BY q.id DESC LIMIT" in sql:
        # The newest tasks are read in the order of their ids, as far as the limit.
        return False
    tables = re.findall(rf"\b(\w+) (?:AS )?{match[1]}\b", sql)
    return any(table in LARGE for table in (match[1], *tables))


@pytest.fixture
def plans(database: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plans]:
    """Give a store with thousands of tasks in every state, and note what it executes."""
    fill_all(database)
    found = Plans(database)
    plain = Runner._execute

    def noted(runner: Runner, statement: Statement, values: dict[str, Any]) -> Any:
        found.note(runner, statement, values)
        return plain(runner, statement, values)

    monkeypatch.setattr(Runner, "_execute", noted)
    yield found
    monkeypatch.undo()


def fill_all(store: Storage) -> None:
    """Let very many tasks be done, failed, blocked by each reason, scheduled and pending, and tell the database so."""
    for key in ("held", "other"):
        store.rules.set_limit(Limit(key, max_running=1))
    store.rules.create_batch("old")
    parents = enqueue(store, *[NewTask("u", queue="far")] * ROWS).ids
    enqueue(store, *[NewTask("u", queue="far", depends_on=(parent,)) for parent in parents])
    enqueue(
        store, *[NewTask("u", queue="far", concurrency_key="held", delay=None if n % 2 else 9e5) for n in range(ROWS)]
    )
    enqueue(
        store, *[NewTask("u", queue="far", batch_id="old", dedupe_key=f"{n}", prefers={"x": 1}) for n in range(ROWS)]
    )
    execute(
        store,
        f"""INSERT INTO work_queue (lane_id, task, status, created_at, finished_at)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {3 * ROWS})
        SELECT q.lane_id, 'u', CASE WHEN n.i % 10 = 0 THEN 'failed' ELSE 'done' END, q.created_at, q.created_at
        FROM n, (SELECT * FROM work_queue ORDER BY id LIMIT 1) q""",
    )
    execute(store, "ANALYZE")


def _work(store: Storage) -> None:
    who = join(store)
    enqueue(store, NewTask("t"), NewTask("t", max_attempts=1), NewTask("t", concurrency_key="other"))
    for end in (success, failure, success):
        finish(store, who, end(claim_one(store, who)))
    enqueue(store, *[NewTask("t")] * 6)
    tasks = claim(store, who, 3)
    finish(store, who, *map(success, tasks))


def _give_back(store: Storage) -> None:
    who, task = running_task(store, dedupe_key="a", dedupe_scope="waiting")
    store.queue.start(who, task.fence)
    store.queue.progress(who.incarnation, task.fence, 0.5, "x")
    store.queue.save_step(who.incarnation, task.fence, "a", "1")
    store.queue.release(who.incarnation, [task.fence], interrupted=True, reason="x")
    claim_one(store, who)
    beat(store, who)
    store.control.rescue(None, nobody)
    store.control.rescue(None, everybody)


def _depend(store: Storage) -> None:
    who = join(store)
    parent = enqueue_one(store)
    child = enqueue_one(store, depends_on=(parent,), batch_id="old", concurrency_key="other")
    finish(store, who, success(claim_one(store, who)))
    store.queue.parents(child)
    other = enqueue_one(store, priority=9)
    enqueue_one(store, depends_on=(other,))
    finish(store, who, failure(claim_one(store, who), final=True))
    store.queue.retry([other])


def _order(store: Storage) -> None:
    who, task = running_task(store)
    store.queue.cancel([task.task_id, enqueue_one(store), enqueue_one(store, concurrency_key="other")])
    store.queue.cancel_requests([who.worker_id])
    store.queue.retry([task.task_id + 1, task.task_id + 2])
    store.queue.retry_failed(limit=3)
    store.queue.retry_failed(error_kind="x", limit=3)


def _keep_up(store: Storage) -> None:
    enqueue_one(store, delay=0.001)
    enqueue_one(store, deadline=store.now())
    execute(store, "UPDATE work_queue SET available_at = created_at WHERE status = 'scheduled' AND task = 't'")
    store.queue.advance()
    store.queue.sweep(50)
    store.queue.next_due_in()
    store.queue.prune(0.0, 50)


def _limit(store: Storage) -> None:
    store.rules.set_limit(Limit("held", max_running=2))
    store.rules.set_limit(Limit("held", rate=1, per_seconds=1))
    store.rules.limit_use()
    store.rules.remove_limit("held")


def _batch(store: Storage) -> None:
    store.rules.create_batch("b", NewTask("after"))
    store.rules.close_batch("b")
    store.rules.close_batch("old")
    store.rules.batch("old")


def _look(store: Storage) -> None:
    lanes = all_lanes(store)
    store.queue.claimable(lanes, 50)
    store.queue.unfinished([lane for lane, _, _ in lanes], 60.0)
    store.queue.counts()
    store.queue.open_totals()
    store.queue.list()


DEEDS = {
    "work": _work,
    "give back": _give_back,
    "depend": _depend,
    "order": _order,
    "keep up": _keep_up,
    "limit": _limit,
    "batch": _batch,
    "look": _look,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_no_verb_reads_a_whole_table(plans: Plans, deed: str) -> None:
    """Whatever workers, operators and maintenance do, every statement finds its rows by an index (DB02)."""
    DEEDS[deed](plans.store)
    assert len(plans.seen) > 4
    assert plans.reading_whole_tables() == []


@pytest.mark.parametrize("deed", ["work", "limit"])
def test_tasks_of_a_key_are_found_by_it(plans: Plans, deed: str) -> None:
    """Whoever asks for the tasks of a limited key reads those of that key, not those of a status."""
    DEEDS[deed](plans.store)
    asking = [(sql, steps) for sql, steps in plans.explained() if re.search(r"\bconcurrency_key (=|>) ", sql)]
    assert asking
    assert [sql for sql, steps in asking if not any("ix_work_queue_key" in step for step in steps)] == []
