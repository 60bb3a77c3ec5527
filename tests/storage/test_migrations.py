"""From one schema to the next and back, with data in every table."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import inspect, text

from fleet.domain.reasons import Reason
from fleet.errors import ConflictError, SchemaMismatch
from fleet.storage import schema
from fleet.storage.database import Database
from fleet.storage.interfaces import Storage
from fleet.storage.views import VIEWS
from tests.storage.filling import TABLES, fill, insert, sample
from tests.storage.samples import claim_one, enqueue_one, execute, join, row

NEW_TABLES = {
    "work_step",
    "work_attempt",
    "work_dependency",
    "work_release",
    "work_batch",
    "work_schedule",
    "work_schedule_tick",
    "queue_setting",
    "limit_setting",
    "limit_state",
    "worker_command",
    "quarantine",
}
NEW_IN_ALL = ("dedupe_scope", "sweep_lane", "sweep_id", "health", "health_json")
NEW_IN = {
    "worker_adapter": (
        "boot_id",
        "pid_namespace",
        "pid",
        "pid_start_ticks",
        "lease_seconds",
        "reason",
        "resizes",
        "on_request_json",
    ),
    "worker_group": ("reference", "listens_until"),
    "scaling_decision": ("codes_json", "inputs_json"),
}


def core(store: Storage) -> Database:
    """Return the database behind a store."""
    found: Database = store.database  # type: ignore[attr-defined]
    return found


@pytest.fixture
def first(own_database: Storage) -> Storage:
    """Give a database of the first schema, empty."""
    schema.downgrade(core(own_database), "base")
    schema.upgrade(core(own_database), "0001")
    return own_database


def fill_first(store: Storage, worker: Mapping[str, Any]) -> None:
    """Put a row into every table of the first schema; `worker` is what its worker's row says."""
    with store.transaction() as transaction:
        inspector = inspect(transaction.connection)
        there = {name: {each["name"] for each in inspector.get_columns(name)} for name in inspector.get_table_names()}
        tables = [table for table in TABLES if table.name in there]
        for table in tables:
            if table.name not in ("fleet_meta", "maintenance"):
                values = sample(table) | (dict(worker) if table.name == "worker_registry" else {})
                known = {name: value for name, value in values.items() if name in there[table.name]}
                insert(transaction.connection, table, known)


def contents(store: Storage) -> dict[str, list[Any]]:
    """Return every row of the tables that the first schema has, without the columns that it has not."""
    with store.transaction() as transaction:
        return {
            table.name: [
                {name: value for name, value in each.items() if name not in (*NEW_IN_ALL, *NEW_IN.get(table.name, ()))}
                for each in transaction.connection.execute(text(f"SELECT * FROM {table.name}")).mappings()
            ]
            for table in TABLES
            if table.name not in NEW_TABLES and table.name != "fleet_meta"
        }


def oldest_reader(store: Storage) -> str:
    """Return the oldest release that may use the database."""
    return str(execute(store, "SELECT value FROM fleet_meta WHERE name = 'oldest_reader'")[0]["value"])


def test_an_upgrade_keeps_every_row(first: Storage) -> None:
    """What a database of the first schema holds is there afterwards; an older release is shut out."""
    fill_first(first, {"status": "terminated"})
    before = contents(first)
    assert schema.upgrade(core(first))
    assert contents(first) == before
    assert (schema.current(core(first)), oldest_reader(first)) == (schema.REVISION, schema.REVISION)


def test_an_upgrade_says_of_old_tasks_what_their_key_meant(first: Storage) -> None:
    """A dedupe key without a scope held while its task ran; a task without a key gets no scope."""
    fill_first(first, {"status": "terminated"})
    execute(first, "UPDATE work_queue SET dedupe_scope = NULL")
    execute(
        first,
        "INSERT INTO work_queue (id, lane_id, task, status, worker, incarnation, dedupe_key, created_at) "
        "SELECT id + :place, lane_id, task, :status, 'w', 'i', :key, created_at FROM work_queue WHERE id = 1",
        place=1,
        status="running",
        key="k",
    )
    execute(
        first,
        "INSERT INTO work_queue (id, lane_id, task, created_at) SELECT 3, lane_id, task, created_at FROM work_queue "
        "WHERE id = 1",
    )
    schema.upgrade(core(first))
    scopes = execute(first, "SELECT id, dedupe_scope FROM work_queue ORDER BY id")
    assert [tuple(each.values()) for each in scopes] == [(1, "open"), (2, "open"), (3, None)]


def test_an_upgraded_database_works(first: Storage) -> None:
    """A task of before the upgrade is claimed after it."""
    execute(first, "INSERT INTO fleet_inbox (task) VALUES ('t')")
    schema.upgrade(core(first))
    assert claim_one(first, join(first)).task == "t"


def test_down_and_up_again_keeps_what_both_schemas_hold(own_database: Storage) -> None:
    """With rows in every table the schema goes back one step and comes again."""
    with own_database.transaction() as transaction:
        fill(transaction.connection)
    before = contents(own_database)
    execute(own_database, "INSERT INTO fleet_meta (name, value) VALUES ('oldest_reader', '0003')")
    schema.downgrade(core(own_database), "0001")
    assert oldest_reader(own_database) == "0001"
    with own_database.transaction() as transaction:
        assert not NEW_TABLES & set(inspect(transaction.connection).get_table_names())
    for view in VIEWS:
        execute(own_database, f"SELECT * FROM {view}")
    assert schema.upgrade(core(own_database), force=True)
    assert contents(own_database) == before


def test_health_comes_and_goes_with_its_schema(own_database: Storage) -> None:
    """One step back and up again with a row in every table keeps all that both schemas hold, and every view reads."""
    with own_database.transaction() as transaction:
        fill(transaction.connection)
    before = contents(own_database)
    execute(own_database, "INSERT INTO fleet_meta (name, value) VALUES ('oldest_reader', '0003')")
    schema.downgrade(core(own_database), "0002")
    assert (schema.current(core(own_database)), oldest_reader(own_database)) == ("0002", "0002")
    with own_database.transaction() as transaction:
        inspector = inspect(transaction.connection)
        assert not {"worker_command", "quarantine"} & set(inspector.get_table_names())
        columns = {each["name"] for each in inspector.get_columns("worker_registry")}
        assert not {"health", "health_json"} & columns
        assert "ix_work_attempt_worker" not in {each["name"] for each in inspector.get_indexes("work_attempt")}
    for view in VIEWS:
        execute(own_database, f"SELECT * FROM {view}")
    assert contents(own_database) == before
    assert schema.upgrade(core(own_database), force=True)
    assert (contents(own_database), oldest_reader(own_database)) == (before, schema.REVISION)
    assert execute(own_database, "SELECT health, health_json FROM worker_registry") == [
        {"health": None, "health_json": None}
    ]


def same_key(store: Storage) -> str:
    """Let a task run whose key another has that waits; return what a refusal calls them."""
    enqueue_one(store, dedupe_key="k", dedupe_scope="waiting")
    claim_one(store, join(store))
    enqueue_one(store, dedupe_key="k", dedupe_scope="waiting")
    return "2 open tasks share a dedupe key"


def dependent(store: Storage) -> str:
    """Let a task wait for another."""
    enqueue_one(store, depends_on=(enqueue_one(store),))
    return "1 blocked tasks"


def preferring(store: Storage) -> str:
    """Let a task prefer some workers."""
    enqueue_one(store, prefers={"gpu": 1})
    return "1 open tasks prefer some workers"


@pytest.mark.parametrize("hold", [same_key, dependent, preferring])
def test_a_downgrade_refuses_what_the_older_schema_cannot_hold(own_database: Storage, hold: Any) -> None:
    """A row that the older schema has no place for is named in one line, and nothing changes; without it, it goes."""
    what = hold(own_database)
    before = contents(own_database)
    with pytest.raises(SchemaMismatch, match=what) as refused:
        schema.downgrade(core(own_database), "0001")
    assert "\n" not in str(refused.value)
    assert (schema.current(core(own_database)), oldest_reader(own_database)) == (schema.REVISION, schema.REVISION)
    assert contents(own_database) == before
    execute(own_database, "UPDATE work_queue SET status = 'cancelled'")
    schema.downgrade(core(own_database), "0001")
    execute(own_database, "INSERT INTO fleet_inbox (task, priority) VALUES ('u', 2)")
    assert execute(own_database, "SELECT rank FROM work_queue WHERE task = 'u'") == [{"rank": -2}]


def live_worker(store: Storage, **given: Any) -> None:
    """Fill the first schema, with a worker within its lease."""
    expires = datetime.now(UTC) + timedelta(seconds=20)
    shown = expires if dialect_is_postgresql(store) else f"{expires:%Y-%m-%dT%H:%M:%S}.000Z"
    fill_first(store, {"status": "active", "lease_expires_at": shown} | given)


def dialect_is_postgresql(store: Storage) -> bool:
    """Return whether the store is on PostgreSQL."""
    with store.transaction() as transaction:
        return not transaction.is_sqlite  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", ["active", "terminating"])
def test_an_upgrade_refuses_under_live_workers(first: Storage, status: str) -> None:
    """While workers are live an upgrade says how many in one line, and changes nothing, unless told (MG04)."""
    live_worker(first, status=status)
    with pytest.raises(ConflictError, match="1 live worker uses schema 0001: stop every fleet-worker") as refused:
        schema.upgrade(core(first))
    assert "\n" not in str(refused.value)
    assert schema.current(core(first)) == "0001"
    assert schema.upgrade(core(first), force=True)


@pytest.mark.parametrize(
    "given", [{"status": "terminated"}, {"status": "lost"}, {"lease_expires_at": "2025-01-01T00:00:00.000Z"}], ids=str
)
def test_an_upgrade_waits_for_no_worker_that_is_gone(first: Storage, given: Mapping[str, str]) -> None:
    """Workers that have ended, or whose lease has, do not stand in the way."""
    live_worker(first, **given)
    assert schema.upgrade(core(first))


def test_an_upgrade_with_nothing_to_do_asks_after_no_worker(own_database: Storage) -> None:
    """Of a present schema an upgrade says so, whoever is live."""
    join(own_database)
    assert not schema.upgrade(core(own_database))


def test_one_call_makes_the_schema(own_database: Storage) -> None:
    """Making the schema says whether this call did."""
    schema.downgrade(core(own_database), "base")
    assert schema.make(core(own_database), adopt=True)
    assert not schema.make(core(own_database), adopt=True)
    assert row(own_database, enqueue_one(own_database)).task == "t"


def test_codes_of_decisions_come_and_go_with_their_schema(own_database: Storage) -> None:
    """One step back and up again with a row in every table keeps the ledger, without its codes, and it still reads."""
    with own_database.transaction() as transaction:
        fill(transaction.connection)
    execute(own_database, "UPDATE scaling_decision SET reasons_json = '[\"a text\"]', codes_json = '[\"a_code\"]'")
    before = contents(own_database)
    execute(own_database, "INSERT INTO fleet_meta (name, value) VALUES ('oldest_reader', '0005')")
    schema.downgrade(core(own_database), "0004")
    assert (schema.current(core(own_database)), oldest_reader(own_database)) == ("0004", "0004")
    with own_database.transaction() as transaction:
        columns = {each["name"] for each in inspect(transaction.connection).get_columns("scaling_decision")}
    assert not {"codes_json", "inputs_json"} & columns
    assert contents(own_database) == before
    assert schema.upgrade(core(own_database), force=True)
    assert (contents(own_database), oldest_reader(own_database)) == (before, schema.REVISION)
    [decision] = own_database.control.decisions()
    assert decision.reasons == (Reason("", "a text"),)
