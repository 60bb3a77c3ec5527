"""How a pass that follows the work finds it: by indexes, never by reading what has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.clock import ManualClock
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import NewTask
from fleet.errors import DatabaseBusy
from fleet.storage import demand, observing, offers
from fleet.storage.database import Transaction
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Statement
from fleet.storage.store import SqlStorage
from fleet.storage.tables import metadata
from tests.databases import opened
from tests.storage.plans import FIXED, applied, begin, plan
from tests.storage.samples import enqueue, enqueue_one, execute, join, nobody
from tests.storage.test_schema import Instructions, plan_of

_READS_ALL = re.compile(r"SCAN (work_queue|work_minute|m|scaling_decision)(?! USING)")
NOW = "2026-01-01T00:00:00.000Z"
ELASTIC = PoolSettings("one-that-follows-the-work", {}, 1)
FINISHED = """INSERT INTO work_queue (lane_id, task, status, rank, priority, created_at, finished_at)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)
SELECT q.lane_id, q.task, '{status}', 0, 0, q.created_at, {finished} FROM n, (SELECT * FROM work_queue LIMIT 1) q"""


def finish_many(store: Storage, number: int) -> None:
    """Put so many tasks that are done beside the first one."""
    execute(store, FINISHED.format(status="done", finished="q.created_at"), number=number)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (demand._OPEN, {"since": NOW}),
        (demand._ENDS, {}),
        (demand._FIRST_FROM, {"id": 1}),
        (demand._NEWEST, {"first": 1, "most": 10}),
        (demand._STATISTICS, {"since": NOW}),
        (demand._ADVICES, {"pool": "p", "most": 10, "since": NOW}),
        (observing._WORKERS_AT_WORK, {"pool": "p", "now": NOW}),
    ],
    ids=["open", "ends", "first", "newest", "statistics", "advices", "workers"],
)
def test_no_statement_reads_a_whole_table(memory: Storage, statement: Statement, values: dict[str, Any]) -> None:
    """Tasks are found by the index of their status or by key, statistics by minute, decisions by pool."""
    steps = plan_of(memory, statement, **values).splitlines()
    assert [step for step in steps if _READS_ALL.match(step)] == [], steps


def test_open_tasks_are_counted_in_their_index(memory: Storage) -> None:
    """Pending tasks are counted lane after lane in the index of claims, without sorting them."""
    steps = plan_of(memory, demand._OPEN, since=NOW).splitlines()
    assert "SCAN work_queue USING INDEX ix_work_queue_claim" in steps
    assert "SCAN work_queue USING INDEX ix_work_queue_running" in steps
    sorts = [at for at, step in enumerate(steps) if "TEMP B-TREE" in step]
    assert [steps[at - 1] for at in sorts] == ["SCAN work_queue USING INDEX ix_work_queue_running"]


def cost(finished: int) -> int:
    """Return the hundreds of instructions that a pass costs beside so many finished tasks."""
    store = opened(":memory:", create=True, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    begin(store)
    join(store)
    enqueue(store, *[NewTask("t")] * 10)
    finish_many(store, finished)
    with Instructions(store) as counted:
        assert len(store.control.snapshot("default", ELASTIC, "native:here", nobody).work) == 1
    store.close()
    return counted.hundreds


def test_what_has_ended_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass costs as much beside 5,000 finished tasks as beside 200, but for the few more steps of a halving."""
    monkeypatch.setattr(demand, "MOST_SPLIT", 100)
    assert cost(5_000) <= cost(200) * 1.3 + 3


def explained(store: Storage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the plans of all statements by which a transaction reads what there is to do, as they are run."""
    plans: list[str] = []
    rows = Transaction.rows

    def explaining(transaction: Transaction, statement: Statement, **values: Any) -> Any:
        text = statement._texts["postgresql"]
        if text.startswith("SELECT"):
            plans.extend(str(row[0]) for row in rows(transaction, Statement(f"EXPLAIN {text}"), **values))
        return rows(transaction, statement, **values)

    assert isinstance(store, SqlStorage)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "rows", explaining)
        store.database.write(lambda transaction: demand.open_work(transaction, demand.pace_of(transaction.now)))
    return plans


def all_done(store: Storage) -> None:
    """Let the statistics be of when all tasks were pending, and nearly all be done since."""
    execute(store, FINISHED.format(status="pending", finished="NULL"), number=20_000)
    execute(store, "ANALYZE work_queue")
    execute(store, "UPDATE work_queue SET status = 'done', finished_at = created_at WHERE id > 5")


def all_pending(store: Storage) -> None:
    """Let the statistics be of when all tasks were done, and all be pending since."""
    finish_many(store, 20_000)
    execute(store, "ANALYZE work_queue")
    execute(store, "UPDATE work_queue SET status = 'pending', finished_at = NULL")


def none_known(store: Storage) -> None:
    """Let there be no statistics, as after a restore."""
    finish_many(store, 20_000)


@pytest.fixture
def own_server(new_postgres_url: str) -> Iterator[Storage]:
    """Give a store on PostgreSQL whose schema the test may change."""
    store = opened(new_postgres_url)
    yield store
    store.close()


@pytest.mark.parametrize("become", [all_done, all_pending, none_known])
def test_a_server_reads_its_indexes_whatever_its_statistics_say(
    own_server: Storage, monkeypatch: pytest.MonkeyPatch, become: Callable[[Storage], None]
) -> None:
    """With statistics of a time when other tasks were open, tasks are still found by the index of their status."""
    store = own_server
    execute(store, "ALTER TABLE work_queue SET (autovacuum_enabled = false)")
    enqueue_one(store)
    become(store)
    plans = explained(store, monkeypatch)
    assert [line for line in plans if "Seq Scan on work_queue" in line] == []
    assert any("ix_work_queue_claim" in line for line in plans)


def test_a_callers_statements_are_planned_as_the_server_would(postgresql: Storage) -> None:
    """What Fleet's sessions say to the server about plans does not hold in a transaction that is lent to a caller."""
    with postgresql.transaction() as transaction:
        for name in ("enable_seqscan", "jit"):
            assert (
                transaction.value(Statement(f"SHOW {name}"))
                == execute(postgresql, f"SELECT reset_val FROM pg_settings WHERE name = '{name}'")[0]["reset_val"]
            )


def test_pools_are_read_in_as_many_statements_however_many_there_are(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty pools that never had a worker are read in no more statements than two."""
    numbers = []
    for first, last in ((0, 2), (2, 50)):
        for number in range(first, last):
            begin(memory, pool=f"p{number}")
        numbers.append(_statements(memory, monkeypatch))
    assert numbers[0] == numbers[1]


def _statements(store: Storage, monkeypatch: pytest.MonkeyPatch) -> int:
    number = 0
    rows = Transaction.rows

    def counted(transaction: Transaction, statement: Statement, **values: Any) -> Any:
        nonlocal number
        number += 1
        return rows(transaction, statement, **values)

    with store.transaction() as transaction, monkeypatch.context() as patched:
        patched.setattr(Transaction, "rows", counted)
        offers.pools(transaction, "default")
    return number


@pytest.mark.parametrize("part", ["open_work", "advices"])
def test_a_read_that_fails_changes_nothing(store: Storage, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """When a pass cannot read to the end nothing is written, and the next one reads as if nothing had been."""
    begin(store, 1, FIXED)
    applied(store, plan())
    enqueue_one(store)
    before, seen = _content(store), store.control.snapshot("default", ELASTIC, "native:here", nobody)
    with _failing(monkeypatch, part), pytest.raises(DatabaseBusy):
        store.control.snapshot("default", ELASTIC, "native:here", nobody)
    assert _content(store) == before
    again = store.control.snapshot("default", ELASTIC, "native:here", nobody)
    assert (again.work[0].pending, again.pools, again.settings) == (seen.work[0].pending, seen.pools, seen.settings)


@contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch, part: str) -> Iterator[None]:
    read: Callable[..., Any] = getattr(demand, part)

    def fail(*arguments: Any) -> None:
        read(*arguments)
        raise DatabaseBusy("it is busy")

    with monkeypatch.context() as patched:
        patched.setattr(demand, part, fail)
        yield


def _content(store: Storage) -> dict[str, Any]:
    return {table.name: execute(store, f"SELECT * FROM {table.name}") for table in metadata.sorted_tables}
