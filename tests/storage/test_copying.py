"""A fleet from one database to another and back: every value, and the ids that are given out afterwards."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from fleet.config import DATABASE_VARIABLE, Location, locate
from fleet.domain.task import NewTask
from fleet.errors import ConflictError, DatabaseBusy, DatabaseSealed
from fleet.storage.copying import Copied, copy_fleet, reopen
from fleet.storage.copying.rows import BATCH
from fleet.storage.database import Database
from fleet.storage.interfaces import Storage
from fleet.storage.store import SqlStorage
from fleet.storage.tables import metadata
from tests.databases import PostgresTemplate, opened
from tests.storage.filling import TABLES, TIME, fill, insert, sample
from tests.storage.samples import all_lanes, enqueue, enqueue_one, execute, join

Contents = dict[str, list[Any]]
TABLE_OF_TASKS = metadata.tables["work_queue"]


def at(url: str) -> Location:
    """Return where a database is, whatever is in its URL."""
    return locate(None, {DATABASE_VARIABLE: url})


def silent(_doing: str, _table: str, _rows: int) -> None:
    """Show no progress."""


@contextmanager
def core(url: str) -> Iterator[Database]:
    """Give the database at a URL, without a look at its seal."""
    database = SqlStorage.database_at(at(url))
    try:
        yield database
    finally:
        database.close()


def copy(source: str, target: str, progress: Callable[[str, str, int], None] = silent) -> Copied:
    """Copy a fleet."""
    with core(source) as database:
        return copy_fleet(database, at(target), progress)


def contents(path: str) -> Contents:
    """Return every value of a SQLite file as it is stored, its type included, and the highest ids."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        rows = {
            table.name: sorted(connection.execute(f"SELECT * FROM {table.name}").fetchall(), key=repr)
            for table in TABLES
        }
        rows["fleet_meta"] = [row for row in rows["fleet_meta"] if row[0] != "sealed"]
        rows["sqlite_sequence"] = sorted(connection.execute("SELECT name, seq FROM sqlite_sequence"))
        return rows


def fill_file(path: str) -> None:
    """Put a row into every table of a file, beside those that describe it."""
    store = opened(path)
    with store.transaction() as transaction:
        meta = transaction.connection.execute(text("SELECT name, value FROM fleet_meta")).mappings().all()
        fill(transaction.connection)
        for row in meta:
            insert(transaction.connection, metadata.tables["fleet_meta"], row)
    store.close()


@pytest.fixture
def source(sqlite_path: Path) -> str:
    """Give a SQLite file with an empty fleet."""
    return str(sqlite_path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """Give the path of a file that is not there."""
    return str(tmp_path / "elsewhere.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, elsewhere: str) -> str:
    """Give a target of each kind: a file that is missing, and a new database of a server."""
    url: str = elsewhere if request.param == "sqlite" else request.getfixturevalue("new_postgres_url")
    return url


def test_every_table_comes_through_and_back(source: str, target: str, tmp_path: Path) -> None:
    """A row of every table, each column with a value, is byte for byte the same after the way there and back."""
    fill_file(source)
    before = contents(source)
    assert all(before[table.name] for table in TABLES)
    there = copy(source, target)
    back = str(tmp_path / "back.db")
    again = copy(target, back)
    assert contents(back) == before
    assert there.tables == again.tables
    assert {name: tally.rows for name, tally in there.tables.items()} == {
        table.name: len(before[table.name]) for table in TABLES
    }


def test_from_one_server_database_to_another(
    source: str, postgres_template: PostgresTemplate, new_postgres_url: str, tmp_path: Path
) -> None:
    """Between two databases of a server everything comes through as well."""
    fill_file(source)
    before = contents(source)
    with postgres_template.copy() as other:
        copy(source, new_postgres_url)
        copy(new_postgres_url, other)
        copy(other, str(tmp_path / "back.db"))
    assert contents(str(tmp_path / "back.db")) == before


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
TIMES = st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z")
REALS = st.floats(allow_nan=False)
WHOLES = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | REALS.filter(lambda one: abs(one) != float("inf")) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ODD_JSON = st.sampled_from(
    [' { "a" : 1, "a" : 2 } ', "1e400", "-0", "[1.10, 1E2]", '"\\u0000"', '"\\ud800"', "\n[\t]\r\n", '"\\/"', "9" * 400]
)
JSON_TEXTS = ODD_JSON | JSON.map(lambda value: json.dumps(value, indent=1)) | JSON.map(json.dumps)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the values, and NULL."""
    return st.none() | values


TASKS = st.fixed_dictionaries(
    {
        "payload_json": optional(JSON_TEXTS),
        "result_json": optional(JSON_TEXTS),
        "error": optional(TEXTS),
        "traceback": optional(TEXTS),
        "dedupe_key": optional(TEXTS),
        "available_at": TIMES,
        "finished_at": optional(TIMES),
        "rank": WHOLES,
        "parent_id": optional(WHOLES),
        "priority": st.integers(-(2**31), 2**31 - 1),
        "timeout_seconds": optional(REALS.filter(lambda one: one > 0)),
        "progress": optional(st.floats(0, 1)),
        "cancel_requested": st.integers(0, 1),
    }
)
MINUTES = st.fixed_dictionaries({"queue": TEXTS, "busy_seconds": REALS, "max_seconds": REALS, "minute": TIMES})


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tasks=st.lists(TASKS, max_size=8), minutes=st.lists(MINUTES, max_size=8, unique_by=lambda row: row["queue"]))
def test_odd_values_come_through_and_back(
    postgres_template: PostgresTemplate,
    sqlite_template: Path,
    tmp_path: Path,
    tasks: list[dict[str, Any]],
    minutes: list[dict[str, Any]],
) -> None:
    """Whatever text, JSON, number and time a row can hold is the same after the way to a server and back."""
    path, back = str(tmp_path / "odd.db"), str(tmp_path / "back.db")
    for file in tmp_path.iterdir():
        file.unlink()
    for copied in (path, back):
        shutil.copy(sqlite_template, copied)
    with closing(sqlite3.connect(path)) as connection, connection:
        add(connection, "claim_lane", [sample(metadata.tables["claim_lane"])])
        known = sample(TABLE_OF_TASKS) | {"status": "done", "idempotency_key": None}
        add(connection, "work_queue", [known | task | {"id": place + 1} for place, task in enumerate(tasks)])
        add(connection, "work_minute", [sample(metadata.tables["work_minute"]) | minute for minute in minutes])
    with closing(sqlite3.connect(back)) as connection, connection:
        connection.execute("UPDATE fleet_meta SET value = 'another' WHERE name = 'database_uuid'")
    before = contents(path)
    with postgres_template.copy() as url:
        copy(path, url)
        copy(url, back)
    assert contents(back) == before


def add(connection: sqlite3.Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows by the driver alone."""
    for row in rows:
        places = ", ".join(f":{name}" for name in row)
        connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)


def test_ids_go_on_above_all_that_were_given_out(source: str, target: str) -> None:
    """A copy gives out no id that the first database has ever given out, though its row is gone."""
    store = opened(source)
    enqueue(store, *[NewTask("t")] * 5)
    execute(store, "DELETE FROM work_queue WHERE id > 3")
    store.close()
    copied = copy(source, target)
    assert copied.tables["work_queue"].last_id == 5
    there = opened(target)
    assert enqueue_one(there) == 6
    there.close()


def test_a_new_fleet_begins_with_one(source: str, target: str) -> None:
    """A copy of a fleet that has given out no ids begins with the first."""
    copy(source, target)
    there = opened(target)
    assert enqueue_one(there) == 1
    there.close()


def test_a_copy_works(source: str, target: str) -> None:
    """Tasks of before the copy are claimed after it, by lanes of before."""
    store = opened(source)
    enqueue(store, *[NewTask("t", payload_json='{"a": "é"}')] * 2)
    store.close()
    copy(source, target)
    there = opened(target)
    who = join(there)
    tasks = there.queue.claim(who, all_lanes(there), 5).tasks
    assert [(task.task_id, task.payload_json) for task in tasks] == [(1, '{"a": "é"}'), (2, '{"a": "é"}')]
    there.close()


def refused(source: str, target: str, *words: str) -> None:
    """Check that a copy is refused in one line with these words, and that the source is as it was."""
    before = contents(source)
    with pytest.raises(ConflictError) as error:
        copy(source, target)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
    assert contents(source) == before
    opened(source).close()


BAD = {
    "bytes that are no UTF-8": ("error", "CAST(x'fffe' AS TEXT)", "error is '\\udcff\\udcfe', which is no UTF-8"),
    "a text as a number": ("priority", "'high'", "priority is 'high', which is no whole number"),
    "a third truth value": ("cancel_requested", "2", "cancel_requested is 2, which is no truth value"),
    "bytes": ("error", "x'00'", "error is b'\\x00', which is no text"),
}


@pytest.mark.parametrize(("column", "value", "words"), BAD.values(), ids=BAD.keys())
def test_a_row_that_a_stranger_has_spoilt_is_named(
    source: str, target: str, column: str, value: str, words: str
) -> None:
    """A value that its column should not hold stops the copy with its row, and the target stays an empty fleet."""
    spoil(source, column, value)
    refused(source, target, "work_queue (id 2): ", words, "correct or delete that row")
    there = opened(target)
    assert (enqueue_one(there), len(there.queue.list())) == (1, 1)
    there.close()


def spoil(path: str, column: str, value: str) -> None:
    """Enqueue two tasks, the second of them with this value."""
    store = opened(path)
    enqueue(store, NewTask("t"), NewTask("t"))
    execute(store, f"UPDATE work_queue SET {column} = {value} WHERE id = 2")
    store.close()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("error", "'a' || char(0)", "work_queue (id 2): error holds a NUL character"),
        ("priority", "3000000000", "out of range"),
        ("finished_at", "'2026-13-39T00:00:00.000Z'", "date/time field value out of range"),
    ],
)
def test_what_a_server_cannot_hold_is_named(
    source: str, new_postgres_url: str, column: str, value: str, words: str
) -> None:
    """A value that only SQLite takes is refused with the table, and what it is."""
    spoil(source, column, value)
    refused(source, new_postgres_url, words, "work_queue")


def test_a_target_that_alters_rows_stays_sealed(source: str, elsewhere: str) -> None:
    """What was read back and differs is named; the target is unusable, the source as before; the next copy succeeds."""
    store = opened(source)
    enqueue_one(store)
    store.close()
    opened(elsewhere, create=True).close()
    with closing(sqlite3.connect(elsewhere)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER forger AFTER INSERT ON work_queue BEGIN UPDATE work_queue SET error = 'forged'; END"
        )
    refused(source, elsewhere, f"{elsewhere} differs from {source} in work_queue", "stays sealed")
    with pytest.raises(DatabaseSealed, match="was not finished"):
        opened(elsewhere)
    with closing(sqlite3.connect(elsewhere)) as connection, connection:
        connection.execute("DROP TRIGGER forger")
    copy(source, elsewhere)
    opened(elsewhere).close()


def test_an_unverified_target_is_reopened_by_force_alone(source: str, target: str) -> None:
    """Where a copy was not finished, reopening says so, and does it only when forced."""
    with pytest.raises(KeyboardInterrupt):
        copy(source, target, interrupting("checked"))
    with core(target) as database:
        with pytest.raises(ConflictError, match="was not finished"):
            reopen(database)
        assert reopen(database, force=True) is not None
        assert reopen(database) is None
    opened(target).close()
    opened(source).close()


def interrupting(what: str) -> Callable[[str, str, int], None]:
    """Return progress that is interrupted as soon as it is told that something of this kind is done."""

    def tell(doing: str, _table: str, _rows: int) -> None:
        if doing == what:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("what", ["copied", "checked"])
def test_an_interrupted_copy_is_run_again(source: str, target: str, what: str) -> None:
    """Interrupted while rows are written or compared, a copy leaves the fleet where it was, and can be repeated."""
    store = opened(source)
    enqueue(store, *[NewTask("t")] * 3)
    store.close()
    before = contents(source)
    with pytest.raises(KeyboardInterrupt):
        copy(source, target, interrupting(what))
    assert contents(source) == before
    store = opened(source)
    enqueue_one(store)
    store.close()
    assert copy(source, target).tables["work_queue"].rows == 4


@pytest.fixture(params=["sqlite", "postgresql"])
def full(request: pytest.FixtureRequest, source: str) -> str:
    """Give a database of each kind with a task in it."""
    url: str = source if request.param == "sqlite" else request.getfixturevalue("new_postgres_url")
    store = opened(url)
    enqueue_one(store)
    store.close()
    return url


def test_nobody_writes_meanwhile(full: str, elsewhere: str) -> None:
    """While a copy reads, whoever wants to write to its source waits, and readers go on."""
    store = opened(full)
    store.database.busy_wait = 0.0  # type: ignore[attr-defined]
    seen = []

    def tell(doing: str, table: str, _rows: int) -> None:
        if (doing, table) == ("checked", "work_queue"):
            seen.append(len(store.queue.list()))
            with pytest.raises(DatabaseBusy):
                store.queue.cancel([1])

    copy(full, elsewhere, tell)
    assert seen == [1, 1]
    store.close()


def test_who_had_it_open_is_told_where_it_is(full: str, elsewhere: str) -> None:
    """A program that opened a database before it was sealed cannot write to it any more, and is told where to."""
    store = opened(full)
    copy(full, elsewhere)
    with pytest.raises(DatabaseSealed, match=f"copied to {elsewhere} at") as error:
        enqueue_one(store)
    assert "\n" not in str(error.value)
    with pytest.raises(DatabaseSealed):
        join(store)
    store.close()


def test_strangers_are_told_where_it_is(full: str, elsewhere: str) -> None:
    """A program in another language that writes rows is refused by the database itself, with the same words."""
    copy(full, elsewhere)
    with core(full) as database:
        for statement in (
            "INSERT INTO fleet_inbox (task) VALUES ('t')",
            "UPDATE work_queue SET status = 'cancelled'",
            "DELETE FROM work_queue",
        ):
            with pytest.raises(Exception, match="copied to"), database.transaction() as transaction:
                transaction.connection.execute(text(statement))


def test_a_reopened_database_is_as_before(full: str, elsewhere: str) -> None:
    """Without its seal a database holds what it held, and takes rows again."""
    copy(full, elsewhere)
    with core(full) as database:
        seal = reopen(database)
        assert seal is not None
        assert seal.other == elsewhere
    store = opened(full)
    assert enqueue_one(store) == 2
    assert execute(store, "SELECT name FROM fleet_meta WHERE name = 'sealed'") == []
    store.close()


def many(store: Storage, rows: int) -> None:
    """Put many tasks into a file by one statement."""
    enqueue_one(store)
    execute(
        store,
        """WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
        INSERT INTO work_queue (id, lane_id, task, payload_json, created_at, status, result_json)
        SELECT i, 1, 't', '{"i": ' || i || '}', :time, 'done', 'null' FROM n""",
        rows=rows,
        time=TIME,
    )


def test_many_rows_in_batches(source: str, new_postgres_url: str, tmp_path: Path) -> None:
    """Of a hundred thousand tasks never more than a batch is in memory, and all of them come through and back."""
    rows = 100_000
    store = opened(source)
    many(store, rows)
    store.close()
    told: dict[tuple[str, str], list[int]] = {}

    def tell(doing: str, table: str, count: int) -> None:
        told.setdefault((doing, table), []).append(count)

    there = copy(source, new_postgres_url, tell)
    back = copy(new_postgres_url, str(tmp_path / "back.db"), tell)
    assert there.tables["work_queue"].rows == back.tables["work_queue"].rows == rows
    for counts in told.values():
        assert all(
            after - before <= BATCH for before, after in zip([0, *counts], counts, strict=False) if after > before
        )
    assert told["copied", "work_queue"][-1] == rows
