"""The views, for people and for programs in other languages."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from fleet.domain.rank import rank
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import HandlerDefaults, NewTask
from fleet.storage.interfaces import Storage
from fleet.storage.sql import as_time, time_of
from tests.storage.filling import dialect_of
from tests.storage.samples import claim_one, enqueue, enqueue_one, execute, join, row


def test_the_inbox_takes_a_task_from_plain_sql(database: Storage) -> None:
    """A row inserted into the inbox is a task like any other, found by its idempotency key and claimed once."""
    execute(
        database,
        "INSERT INTO fleet_inbox (task, payload_json, queue, priority, idempotency_key) "
        """VALUES ('t', '{"a": 1}', 'mail', 3, 'k')""",
    )
    [found] = execute(database, "SELECT id FROM work_queue WHERE task = 't' AND idempotency_key = 'k'")
    record = row(database, found["id"])
    assert (record.queue, record.priority, record.status, record.max_attempts) == ("mail", 3, "pending", 3)
    task = claim_one(database, join(database))
    assert task.task_id == found["id"]
    assert task.payload_json == '{"a": 1}'


def test_the_inbox_needs_only_a_task(database: Storage) -> None:
    """Only the task's name is required; the rest comes from the fleet's defaults."""
    execute(database, "INSERT INTO fleet_inbox (task) VALUES ('t')")
    [record] = database.queue.list()
    assert (record.task, record.queue, record.priority) == ("t", "default", 0)
    assert claim_one(database, join(database)).payload_json == "{}"


def test_the_inbox_fills_in_the_handlers_defaults(database: Storage) -> None:
    """Tasks from the inbox get their handler's stored queue, requirements, attempts and timeout."""
    policy = RetryPolicy("fixed", 2, 2)
    database.queue.declare_handlers([HandlerDefaults("t", "images", {"gpu": 1}, 7, 9.0, policy)])
    by_python = enqueue_one(database)
    execute(database, "INSERT INTO fleet_inbox (task) VALUES ('t')")
    first = row(database, by_python)
    [second] = [each for each in database.queue.list() if each.task_id != by_python]
    for name in ("queue", "requires", "max_attempts", "timeout_seconds"):
        assert getattr(second, name) == getattr(first, name), name
    assert len(database.queue.lanes()) == 1


def test_the_inbox_is_idempotent(database: Storage) -> None:
    """The same idempotency key twice is one task."""
    for _ in range(2):
        execute(database, "INSERT INTO fleet_inbox (task, idempotency_key) VALUES ('t', 'k')")
    assert len(database.queue.list()) == 1


def test_the_inbox_orders_by_priority(database: Storage) -> None:
    """Tasks from the inbox take their place among the others."""
    low, high = enqueue(database, NewTask("t", priority=1), NewTask("t", priority=3)).ids
    execute(database, "INSERT INTO fleet_inbox (task, priority) VALUES ('t', 2)")
    who = join(database)
    order = [claim_one(database, who).task_id for _ in range(3)]
    assert (order[0], order[2]) == (high, low)


@pytest.mark.parametrize(
    "row_sql",
    [
        "(task) VALUES (NULL)",
        "(task) VALUES ('')",
        "(payload_json) VALUES ('{}')",
        "(task, payload_json) VALUES ('t', '[1]')",
        "(task, payload_json) VALUES ('t', '{')",
        "(task, payload_json) VALUES ('t', 'null')",
        "(task) VALUES ('a b')",
        "(task) VALUES ('-t')",
        "(task, queue) VALUES ('t', 'a b')",
        "(task, queue) VALUES ('t', '')",
        "(task, priority) VALUES ('t', 'abc')",
        "(task, priority) VALUES ('t', 1000001)",
    ],
)
def test_the_inbox_refuses_what_is_no_task(database: Storage, row_sql: str) -> None:
    """A row without a task, or whose payload is not a JSON object, is refused and leaves nothing."""
    with pytest.raises(DBAPIError):
        execute(database, f"INSERT INTO fleet_inbox {row_sql}")
    assert database.queue.list() == ()
    assert database.queue.lanes() == ()


def test_claimable_lanes_for_other_languages(database: Storage) -> None:
    """A worker in another language reads which lanes wait, with what they require."""
    enqueue(database, NewTask("t"), NewTask("t"), NewTask("u", requires={"gpu": 1}), NewTask("t", delay=9))
    lanes = execute(database, "SELECT task, requires, waiting FROM fleet_claimable ORDER BY task")
    assert [tuple(each.values()) for each in lanes] == [("t", "{}", 2), ("u", '{"gpu":1}', 1)]


def test_claimable_lanes_leave_out_paused_queues(database: Storage) -> None:
    """Lanes of a queue that is paused now are not claimable; one whose pause has passed is."""
    enqueue(database, *[NewTask("t", queue=queue) for queue in ("open", "paused", "later", "earlier")])
    for queue, until in (("paused", None), ("later", timedelta(hours=1)), ("earlier", timedelta(hours=-1))):
        database.rules.pause(queue, None if until is None else datetime.now(UTC) + until)
    assert {each["queue"] for each in execute(database, "SELECT queue FROM fleet_claimable")} == {"open", "earlier"}


PREFERRING = NewTask("t", requires={"gpu": 1, "mem": 16.5}, prefers={"ssd": 1})


def test_claimable_lanes_say_what_is_required_and_what_is_preferred(database: Storage) -> None:
    """Preferences stand beside the requirements, not among them, as texts that are equal for equal sets."""
    enqueue(database, PREFERRING, NewTask("u", prefers={"ssd": 2}), NewTask("v"))
    lanes = execute(database, "SELECT task, requires, prefers FROM fleet_claimable ORDER BY task")
    assert [tuple(each.values()) for each in lanes] == [
        ("t", '{"gpu":1,"mem":16.5}', '{"ssd":1}'),
        ("u", "{}", '{"ssd":2}'),
        ("v", "{}", "{}"),
    ]


def test_tasks_show_what_holds_and_binds_them(database: Storage) -> None:
    """Every rule over a task is a column of the view."""
    parent = enqueue_one(database)
    deadline = datetime(2100, 1, 1, tzinfo=UTC)
    task_id = enqueue_one(
        database,
        requires={"gpu": 1},
        prefers={"ssd": 1},
        concurrency_key="key",
        dedupe_key="once",
        deadline=deadline,
        depends_on=(parent,),
    )
    [seen] = execute(database, "SELECT * FROM fleet_tasks WHERE id = :id", id=task_id)
    assert (seen["requires_json"], seen["prefers_json"]) == ('{"gpu":1}', '{"ssd":1}')
    assert (seen["status"], seen["blocked_reason"]) == ("blocked", "parents")
    assert (seen["concurrency_key"], seen["dedupe_key"], seen["dedupe_scope"]) == ("key", "once", "open")
    assert as_time(seen["deadline_at"]) == deadline
    assert not seen["cancel_requested"]
    assert (seen["batch_id"], seen["parent_id"], seen["avoid_worker"]) == (None, None, None)


def test_a_lane_with_an_unreadable_key_spoils_no_view(memory: Storage) -> None:
    """A requirement that is no JSON, which only another program can have written, is shown as it is."""
    enqueue_one(memory)
    execute(memory, """UPDATE claim_lane SET capability_key = '{"prefers":{'""")
    assert [each["requires_json"] for each in execute(memory, "SELECT * FROM fleet_tasks")] == ['{"prefers":{']
    assert [each["waiting"] for each in execute(memory, "SELECT * FROM fleet_claimable")] == [1]


MINUTE = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:00.000Z', 'now', '-{} minutes')",
    "postgresql": "date_trunc('minute', statement_timestamp() - interval '{} minutes')",
}


def add_statistics(store: Storage, minutes_ago: int, done: int, failed: int) -> None:
    """Write what a worker would have counted in a minute."""
    minute = MINUTE[dialect_of(store)].format(minutes_ago)
    execute(
        store,
        f"INSERT INTO work_minute (minute, queue, task, done, failed) VALUES ({minute}, 'q', 't', :done, :failed)",
        done=done,
        failed=failed,
    )


def status_rows(store: Storage) -> dict[tuple[str, str], int]:
    """Return the counts of the view by kind and name."""
    return {(each["kind"], each["name"]): each["count"] for each in execute(store, "SELECT * FROM fleet_status")}


def test_the_status_counts_open_tasks_and_takes_finished_ones_from_statistics(database: Storage) -> None:
    """Open states are counted; what has ended is told by the minute, without reading history; pauses are named."""
    parent = enqueue_one(database)
    enqueue(database, NewTask("t", queue="paused"), NewTask("t", delay=99), NewTask("t", depends_on=(parent,)))
    database.queue.cancel([enqueue_one(database)])
    database.rules.pause("paused")
    for minutes_ago, done, failed in ((1, 5, 0), (60, 7, 2), (2_000, 100, 100)):
        add_statistics(database, minutes_ago, done, failed)
    assert status_rows(database) == {
        ("tasks", "pending"): 2,
        ("tasks", "scheduled"): 1,
        ("tasks", "blocked"): 1,
        ("queues", "paused"): 1,
        ("finished_10m", "done"): 5,
        ("finished_24h", "done"): 12,
        ("finished_24h", "failed"): 2,
    }


def test_the_status_tells_the_age_of_the_oldest_task(database: Storage) -> None:
    """Of an open state the age of its oldest task is shown."""
    for created in ("2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"):
        execute(database, "UPDATE work_queue SET created_at = :at WHERE id = :id", at=created, id=enqueue_one(database))
    [seen] = execute(database, "SELECT oldest_seconds AS age FROM fleet_status WHERE name = 'pending'")
    assert float(seen["age"]) == pytest.approx(
        (datetime.now(UTC) - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds(), abs=60
    )


def plan_of_the_status(store: Storage) -> list[str]:
    """Return those steps of the view's plan that read tasks."""
    word = "EXPLAIN QUERY PLAN" if dialect_of(store) == "sqlite" else "EXPLAIN"
    steps = [str(list(each.values())[-1]) for each in execute(store, f"{word} SELECT * FROM fleet_status")]
    return [step for step in steps if "work_queue" in step or " q " in step]


def fill_history(store: Storage, rows: int) -> None:
    """Let many tasks have ended, and tell the database so."""
    enqueue_one(store)
    execute(
        store,
        f"""INSERT INTO work_queue (lane_id, task, status, created_at, finished_at)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
        SELECT q.lane_id, 't', 'done', q.created_at, q.created_at FROM n, work_queue q""",
    )
    execute(store, "ANALYZE")


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_status_reads_no_finished_task(own_database: Storage, analyzed: bool) -> None:
    """The view counts each open state in the index that holds no other."""
    # A database of its own: what another test has gathered of the tables would change the plan.
    database = own_database
    if dialect_of(database) == "postgresql" or analyzed:
        fill_history(database, 5_000)
    steps = plan_of_the_status(database)
    for index in ("blocked", "due", "claim", "running"):
        assert any(f"ix_work_queue_{index}" in step for step in steps), (index, steps)
    assert [step for step in steps if "Seq Scan" in step or ("SCAN" in step and "ix_work_queue" not in step)] == []


def test_the_inbox_ranks_by_age_where_waiting_counts(database: Storage) -> None:
    """Where ageing is on, a task from the inbox has the rank that it would have had from Python."""
    database.rules.set_setting("age", 60.0)
    for priority in (-2, 0, 7):
        execute(database, "INSERT INTO fleet_inbox (task, priority) VALUES ('t', :priority)", priority=priority)
    for task in execute(database, "SELECT rank, priority, created_at FROM work_queue"):
        assert task["rank"] == rank(task["priority"], time_of(task["created_at"]), 60_000)


def test_an_unreadable_worth_of_waiting_is_none(database: Storage) -> None:
    """The inbox goes on, by priority alone, when the setting is no number."""
    execute(database, "UPDATE fleet_meta SET value = 'much' WHERE name = 'age_ms'")
    execute(database, "INSERT INTO fleet_inbox (task, priority) VALUES ('t', 3)")
    assert [each["rank"] for each in execute(database, "SELECT rank FROM work_queue")] == [-3]


def test_the_inbox_refuses_what_is_too_large(database: Storage) -> None:
    """A payload above 1 MiB is refused with the limit, as it is everywhere else (PL05)."""
    with pytest.raises(DBAPIError, match="more than 1048576 bytes"):
        execute(
            database,
            "INSERT INTO fleet_inbox (task, payload_json) VALUES ('t', :payload)",
            payload='{"a":"' + "x" * 1_048_577 + '"}',
        )
    assert sum(database.queue.open_totals().values()) == 0
