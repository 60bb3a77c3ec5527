"""How many statements an enqueue takes: what SQLite executes is counted, whoever asked for it."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from fleet.domain.alike import TasksAlike
from fleet.domain.task import HandlerDefaults, NewTask
from fleet.storage.interfaces import Storage
from fleet.storage.queue.inserting import COLUMNS, TABLE_DEFAULTS
from fleet.storage.sqlite import SqliteWays
from fleet.storage.tables import work_queue
from fleet.storage.wire import Wires
from tests.storage.samples import Traced, enqueue_one


def _payloads(count: int) -> list[str]:
    return [f'{{"n":{number}}}' for number in range(count)]


@pytest.mark.parametrize("listed", [False, True])
def test_a_thousand_plain_tasks_take_ten_statements(traced: Traced, listed: bool) -> None:
    """A bulk of 1,000 tasks that are alike takes four inserts and six statements about all of them together."""
    store, executed = traced
    tasks = TasksAlike(NewTask("t", priority=1), _payloads(1_000))
    store.queue.enqueue(tasks)
    executed.clear()
    assert len(store.queue.enqueue(list(tasks) if listed else tasks).ids) == 1_000
    assert len(executed) <= 10, executed
    assert sum(sql.startswith("INSERT INTO work_queue") for sql in executed) == 4


def test_a_task_like_one_before_takes_one_statement(traced: Traced) -> None:
    """A single task like one that was enqueued before is added by one statement, declared defaults or not."""
    store, executed = traced
    store.queue.declare_handlers([HandlerDefaults("t", queue="q", requires={"gpu": 1}, max_attempts=5)])
    for given in ({}, {"priority": 3}, {"requires": {"mem": 2}, "prefers": {"ssd": 1}}, {"timeout": 9.0}):
        enqueue_one(store, **given)
        executed.clear()
        enqueue_one(store, **given)
        assert len(executed) == 1, executed
        assert executed[0].startswith("INSERT INTO work_queue")


def test_the_first_task_of_its_kind_takes_few_statements(traced: Traced) -> None:
    """A single task of a known lane takes at most 13 statements the first time, of which one inserts."""
    store, executed = traced
    store.queue.enqueue([NewTask("t")] * 2)
    executed.clear()
    enqueue_one(store)
    assert len(executed) <= 13, executed
    assert sum(sql.startswith("INSERT") for sql in executed) == 1


def test_kinds_that_take_turns_are_looked_up_once_each(traced: Traced) -> None:
    """Tasks of two handlers that take turns cost one insert each, and one look for each handler's lane."""
    store, executed = traced
    tasks = [NewTask(f"t{number % 2}", text) for number, text in enumerate(_payloads(200))]
    store.queue.enqueue(tasks)
    executed.clear()
    store.queue.enqueue(tasks)
    assert len(executed) <= 200 + 10
    assert sum("FROM claim_lane" in sql for sql in executed) == 2


def test_what_is_left_out_of_an_insert_is_what_the_table_gives() -> None:
    """A column that an insert leaves out gets the value that the task's row says."""
    given = {name: work_queue.c[name].server_default for name in COLUMNS}
    written = {name: str(default.arg) for name, default in given.items() if default is not None}  # type: ignore[attr-defined]
    assert written == {name: str(value) for name, value in TABLE_DEFAULTS.items()}
    assert all(
        work_queue.c[name].nullable or name in {*TABLE_DEFAULTS, "lane_id", "task", "created_at"} for name in COLUMNS
    )


def test_one_connection_serves_each_transaction(sqlite_file: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next gets the connection that was used last, without asking the pool."""
    enqueue_one(sqlite_file)
    asked: list[Engine] = []
    monkeypatch.setattr(Engine, "raw_connection", lambda engine: asked.append(engine))
    for _ in range(5):
        enqueue_one(sqlite_file)
        sqlite_file.queue.open_totals()
    assert asked == []


def test_few_connections_stay_idle_and_no_broken_one(sqlite_path: Path) -> None:
    """Beyond two idle connections, and when it is broken, one goes back to the pool; all go when they are let go."""
    engine = SqliteWays(sqlite_path).engine()
    wires = Wires(engine)
    taken = [wires.take() for _ in range(4)]
    taken[0].invalidate()
    for wire in taken:
        wires.give_back(wire)
    assert [wire.closed for wire in taken] == [True, False, False, True]
    assert wires.take() is taken[2]
    wires.give_back(taken[2])
    wires.let_go()
    assert all(wire.closed for wire in taken)
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()
