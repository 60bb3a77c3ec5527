from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection, MetaData, Table, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import Integer

from fleet.clock import ManualClock
from fleet.domain.task import NewTask
from fleet.storage import schema
from fleet.storage.database import Transaction
from fleet.storage.interfaces import Storage
from fleet.storage.queue import claiming
from fleet.storage.store import SqlStorage
from fleet.storage.tables import metadata
from fleet.storage.types import JsonText, UtcTime
from fleet.storage.views import VIEWS
from tests.databases import opened
from tests.storage.filling import TABLES, TIME, dialect_of, fill, insert, sample
from tests.storage.samples import all_lanes, enqueue, enqueue_one, execute, join

_TASK = ("claim_lane", "work_queue")
PARENTS = {"work_queue": ("claim_lane",), "work_payload": _TASK, "work_step": _TASK, "work_attempt": _TASK}
BAD_TIMES = (
    "yesterday",
    "2026-01-01 00:00:00.000",
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.000+00:00",
    "2026-01-01T00:00:00.000000Z",
    "2026-01-01T00:00:00.000Zx",
    "26-01-01T00:00:00.000Z",
    1_767_225_600,
)
BAD_JSON = ("", "{", "nonsense", "{'a':1}")

EXPLICIT: dict[str, dict[str, Any]] = {
    "ck_worker_registry_lease": {"heartbeat_interval_seconds": 5, "lease_seconds": 14.9},
    "ck_worker_registry_heartbeat": {"heartbeat_interval_seconds": 0},
    "ck_worker_registry_slots": {"slots": 0},
    "ck_quarantine_released": {"released_by": None},
    "ck_work_queue_counts": {"attempt": -1},
    "ck_work_queue_max_attempts": {"max_attempts": 0},
    "ck_work_queue_timeout": {"timeout_seconds": 0},
    "ck_work_queue_dedupe_scope": {"dedupe_scope": "sometimes"},
    "ck_work_queue_progress": {"progress": 1.1},
    "ck_work_queue_holder": {"status": "running", "worker": None},
    "ck_work_queue_scheduled": {"status": "scheduled", "available_at": None},
    "ck_work_schedule_cron_or_interval": {"cron": None, "every_seconds": None},
    "ck_work_schedule_every_seconds": {"every_seconds": 0},
    "ck_limit_setting_max_running": {"max_running": -1},
    "ck_limit_setting_rate": {"rate": None},
    "ck_limit_setting_positive_rate": {"rate": 0},
    "ck_limit_setting_burst": {"burst": 0},
    "ck_task_handler_max_attempts": {"max_attempts": 0},
    "ck_task_handler_timeout": {"timeout_seconds": -1},
    "ck_scheduler_min_workers": {"min_workers": -1},
    "ck_scheduler_max_workers": {"min_workers": 2, "max_workers": 1},
    "ck_scheduler_max_launch": {"max_launch_per_cycle": 0},
    "ck_worker_adapter_failures": {"consecutive_failures": -1},
    "ck_worker_group_target_size": {"target_size": -1},
}


class _Undo(Exception):
    """Leaves a transaction without committing."""


def refusal(store: Storage, table: Table, values: Mapping[str, Any]) -> str | None:
    """Return why the database refuses a row beside those that it refers to; None when it takes it."""
    try:
        with store.transaction() as transaction:
            for parent in TABLES:
                transaction.connection.execute(text(f"DELETE FROM {parent.name}"))
            for parent in PARENTS.get(table.name, ()):
                insert(transaction.connection, metadata.tables[parent], sample(metadata.tables[parent]))
            insert(transaction.connection, table, values)
            raise _Undo
    except _Undo:
        return None
    except DBAPIError as error:
        return str(error.orig)


def checks(dialect: str) -> Iterator[tuple[Table, CheckConstraint]]:
    """Yield every CHECK that holds on this kind of database."""
    for table in TABLES:
        for constraint in table.constraints:
            if isinstance(constraint, CheckConstraint):
                condition = constraint._ddl_if
                if condition is None or condition.dialect == dialect:
                    yield table, constraint


def violations(table: Table, constraint: CheckConstraint) -> Iterator[dict[str, Any]]:
    """Yield values that break one CHECK and nothing else."""
    name = str(constraint.name)
    if name in EXPLICIT:
        yield EXPLICIT[name]
        return
    column = table.columns[name.removeprefix(f"ck_{table.name}_")]
    if isinstance(column.type, UtcTime):
        yield from ({column.name: value} for value in BAD_TIMES)
    elif isinstance(column.type, JsonText):
        yield from ({column.name: value} for value in BAD_JSON)
    elif isinstance(column.type, Integer):
        yield {column.name: 2}
    else:
        yield {column.name: "nonsense"}


def test_a_sound_row_is_taken_by_every_table(database: Storage) -> None:
    """The rows that the violations start from are allowed, so that a refusal means the violation."""
    assert {table.name: refusal(database, table, sample(table)) for table in TABLES} == {
        table.name: None for table in TABLES
    }


def test_every_check_refuses_its_violation(database: Storage) -> None:
    """Every CHECK of every table refuses a row that breaks it, by its own name (CK11)."""
    wrong = []
    for table, constraint in checks(dialect_of(database)):
        for broken in violations(table, constraint):
            reason = refusal(database, table, sample(table) | broken)
            if reason is None or str(constraint.name) not in reason:
                wrong.append((constraint.name, broken, reason))
    assert wrong == []


def test_every_explicit_violation_is_of_a_check() -> None:
    """No violation is listed for a CHECK that is no more."""
    assert EXPLICIT.keys() <= {constraint.name for _, constraint in checks("sqlite")}


def test_json_columns_refuse_what_is_no_json(database: Storage) -> None:
    """No JSON column takes a text that is not JSON, by CHECK or by type."""
    for table in TABLES:
        for column in table.columns:
            if isinstance(column.type, JsonText):
                assert refusal(database, table, sample(table) | {column.name: "{"}) is not None, column


def test_required_columns_refuse_null(database: Storage) -> None:
    """Every column that must have a value refuses NULL."""
    for table in TABLES:
        for column in table.columns:
            if not column.nullable and not column.primary_key:
                assert refusal(database, table, sample(table) | {column.name: None}) is not None, column


def test_every_status_time_and_json_column_has_a_check() -> None:
    """No status, time or JSON column is without a CHECK on SQLite."""
    named = {constraint.name for _, constraint in checks("sqlite")}
    for table in TABLES:
        for column in table.columns:
            if isinstance(column.type, UtcTime | JsonText) or "check" in column.info:
                assert f"ck_{table.name}_{column.name}" in named


def unnamed(connection: Connection) -> list[tuple[str, str]]:
    """Return the constraints that have no name."""
    inspector = inspect(connection)
    found = []
    for table in TABLES:
        # SQLite has no place for a name in `INTEGER PRIMARY KEY AUTOINCREMENT`.
        nameless = connection.dialect.name == "sqlite" and table.dialect_options["sqlite"]["autoincrement"]
        groups = {
            "primary key": [] if nameless else [inspector.get_pk_constraint(table.name)],
            "foreign key": inspector.get_foreign_keys(table.name),
            "unique": inspector.get_unique_constraints(table.name),
            "check": inspector.get_check_constraints(table.name),
            "index": inspector.get_indexes(table.name),
        }
        found += [(table.name, kind) for kind, each in groups.items() for one in each if not one["name"]]
    return found


def test_every_constraint_has_a_name(database: Storage) -> None:
    """Every key, constraint and index has a name, so that a later migration can change it (MG05)."""
    with database.transaction() as transaction:
        assert unnamed(transaction.connection) == []


def reflected(connection: Connection) -> dict[str, Any]:
    """Return the columns, keys, indexes and CHECKs of every table as the database tells them."""
    inspector = inspect(connection)
    return {
        table.name: {
            "columns": [
                (column["name"], str(column["type"]), column["nullable"], str(column["default"]).split("::")[0])
                for column in inspector.get_columns(table.name)
            ],
            "primary": inspector.get_pk_constraint(table.name),
            "foreign": sorted(map(str, inspector.get_foreign_keys(table.name))),
            "unique": sorted(map(str, inspector.get_unique_constraints(table.name))),
            "checks": sorted((each["name"], each["sqltext"]) for each in inspector.get_check_constraints(table.name)),
            "indexes": sorted(map(_index, inspector.get_indexes(table.name)), key=str),
        }
        for table in TABLES
    }


def _index(index: Mapping[str, Any]) -> tuple[Any, ...]:
    where = {str(value) for key, value in index.get("dialect_options", {}).items() if key.endswith("where")}
    return index["name"], index["column_names"], bool(index["unique"]), sorted(where)


def test_migrations_equal_the_tables(own_database: Storage) -> None:
    """What the migrations make is what the tables say, CHECKs and partial indexes included."""
    with own_database.transaction() as transaction:
        connection = transaction.connection
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": lambda name, kind, _: name not in VIEWS}
        )
        differences = [each for each in compare_metadata(context, metadata) if schema.VERSION_TABLE not in str(each)]
        assert differences == []
        migrated = reflected(connection)
    schema.downgrade(own_database.database, "base")  # type: ignore[attr-defined]
    with own_database.transaction() as transaction:
        metadata.create_all(transaction.connection)
        assert reflected(transaction.connection) == migrated


def tables_and_views(connection: Connection) -> set[str]:
    """Return the names of all tables and views but the version's."""
    inspector = inspect(connection)
    return {*inspector.get_table_names(), *inspector.get_view_names()} - {schema.VERSION_TABLE}


def test_down_and_up_again_with_data(own_database: Storage) -> None:
    """With rows in every table the schema goes down to nothing and up again to the same (MG05)."""
    core = own_database.database  # type: ignore[attr-defined]
    with own_database.transaction() as transaction:
        fill(transaction.connection)
        before = reflected(transaction.connection), tables_and_views(transaction.connection)
    schema.downgrade(core, "base")
    with own_database.transaction() as transaction:
        assert tables_and_views(transaction.connection) == set()
    assert schema.upgrade(core)
    assert not schema.upgrade(core)
    with own_database.transaction() as transaction:
        assert (reflected(transaction.connection), tables_and_views(transaction.connection)) == before
    enqueue_one(own_database)


def test_the_names_of_tables_and_views(database: Storage) -> None:
    """The database holds the tables and views that people and other languages read, and no others."""
    with database.transaction() as transaction:
        assert tables_and_views(transaction.connection) == {*metadata.tables, *VIEWS}


def test_a_new_database_says_what_it_is(database: Storage) -> None:
    """A database has an identity and names the oldest release that may read it (MG04, DK06)."""
    meta = {each["name"]: each["value"] for each in execute(database, "SELECT name, value FROM fleet_meta")}
    assert len(meta["database_uuid"]) == 32
    assert meta["oldest_reader"] == schema.REVISION


class Instructions:
    """Counts the instructions that SQLite executes, by hundreds."""

    def __init__(self, store: Storage) -> None:
        with store.transaction() as transaction:
            self._driver: Any = transaction.connection.connection.dbapi_connection
        self.hundreds = 0

    def _count(self) -> int:
        self.hundreds += 1
        return 0

    def __enter__(self) -> "Instructions":
        self._driver.set_progress_handler(self._count, 100)
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.set_progress_handler(None, 0)


def cost_of_a_claim(backlog: int, limit: int) -> int:
    """Return the hundreds of instructions that a claim out of so many waiting tasks costs."""
    store = opened(":memory:", create=True, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    who = join(store)
    enqueue(store, *[NewTask("t", queue=f"q{number % 5}", priority=number % 7) for number in range(backlog)])
    lanes = all_lanes(store)
    with Instructions(store) as counted:
        assert len(store.queue.claim(who, lanes, limit).tasks) == limit
    store.close()
    return counted.hundreds


@pytest.mark.parametrize("limit", [1, 10])
def test_a_claim_costs_the_same_whatever_waits(limit: int) -> None:
    """A claim costs the same with 4,000 tasks waiting as with 100: it neither scans nor sorts the backlog."""
    assert cost_of_a_claim(4_000, limit) <= cost_of_a_claim(100, limit) * 1.5 + 3


def plan_of(store: Storage, statement: Any, **values: Any) -> str:
    """Return the database's plan for a statement, in a transaction of Fleet's own."""

    def explained(transaction: Transaction) -> str:
        dialect = transaction.connection.dialect
        sql, order = statement.compiled(dialect)
        cursor = transaction.connection.connection.dbapi_connection.cursor()
        word = "EXPLAIN QUERY PLAN" if dialect.name == "sqlite" else "EXPLAIN"
        cursor.execute(f"{word} {sql}", [values[name] for name in order] if order else values)
        return "\n".join(str(each[-1]) for each in cursor.fetchall())

    assert isinstance(store, SqlStorage)
    return store.database.read(explained)


@pytest.mark.parametrize("statement", ["_NEXT", "_ANY"])
def test_a_claim_reads_the_partial_index(database: Storage, statement: str) -> None:
    """The statements that look for the next task use the index of pending tasks by lane and rank."""
    enqueue(database, *[NewTask("t", queue=f"q{number % 5}") for number in range(3_000)])
    execute(database, "ANALYZE")
    now = TIME if dialect_of(database) == "sqlite" else datetime(2026, 1, 1, tzinfo=UTC)
    plan = plan_of(
        database,
        getattr(claiming, statement),
        lanes="[[1,0,0],[2,0,0]]",
        limit=3,
        worker="w",
        now=now,
        avoided_until=now,
        preferred_until=now,
    )
    assert "ix_work_queue_claim" in plan
    assert "SCAN work_queue" not in plan
    assert "SCAN w " not in plan
    assert "Seq Scan on work_queue" not in plan


def test_the_version_is_read_in_one_row(memory: Storage) -> None:
    """A current schema passes the check, and the metadata describes every table that was made."""
    schema.check(memory.database)  # type: ignore[attr-defined]
    assert isinstance(metadata, MetaData)
