import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.domain.task import NewTask
from fleet.storage import interfaces
from fleet.storage.database import Transaction
from fleet.storage.interfaces import Storage
from fleet.storage.sql import Statement
from tests.databases import KINDS, opened
from tests.storage.samples import enqueue_one, execute, row


def test_a_second_opening_sees_the_same_fleet(sqlite_path: Path, postgres_url: str) -> None:
    """Two stores of one database share what is in it."""
    for url in (str(sqlite_path), postgres_url):
        first, second = opened(url), opened(url)
        task_id = enqueue_one(first)
        assert row(second, task_id) == row(first, task_id)
        first.close()
        second.close()


def test_the_stores_time_is_aware_and_in_milliseconds(store: Storage) -> None:
    """The store's time is aware, in UTC, and no finer than a row can hold (CK07)."""
    now = store.now()
    assert now.tzinfo is UTC
    assert now.microsecond % 1_000 == 0
    assert store.now() >= now


def test_a_long_transaction_does_not_date_rows_back(postgresql: Storage) -> None:
    """In a transaction of the caller's a task is dated when it is enqueued, not when the transaction began (CK09)."""
    passed = "SELECT clock_timestamp() > transaction_timestamp() + interval '5 milliseconds'"
    with postgresql.transaction() as transaction:
        [first] = postgresql.queue.enqueue([NewTask("t")], transaction=transaction).ids
        while not transaction.connection.exec_driver_sql(passed).scalar_one():
            pass
        [second] = postgresql.queue.enqueue([NewTask("t")], transaction=transaction).ids
    assert row(postgresql, second).created_at > row(postgresql, first).created_at


def test_the_url_tells_no_secret(postgres_url: str) -> None:
    """The store says where it is without the password that was given."""
    with_secret = postgres_url.replace("://postgres@", "://postgres:s3cret@")
    store = opened(with_secret)
    assert "s3cret" not in store.url
    assert "fleet_test_" in store.url
    store.close()


def test_only_a_file_tolerates_slow_writes(store: Storage) -> None:
    """On SQLite a worker whose beat waits may go on after a read; on PostgreSQL it fences itself."""
    assert store.tolerates_slow_writes != store.url.startswith("postgresql")


def test_claims_are_smaller_where_others_cannot_write_meanwhile(store: Storage) -> None:
    """A claim brings up to 500 tasks on PostgreSQL, and 100 on SQLite, whose lock others wait for."""
    assert store.largest_batch == (500 if store.url.startswith("postgresql") else 100)


def test_a_transaction_that_fails_leaves_nothing(store: Storage) -> None:
    """An exception in the block rolls everything back, and the store works on."""

    def fail() -> None:
        with store.transaction() as transaction:
            transaction.connection.exec_driver_sql("INSERT INTO fleet_meta (name, value) VALUES ('x', '1')")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert execute(store, "SELECT 1 FROM fleet_meta WHERE name = 'x'") == []
    enqueue_one(store)


def test_waiting_callbacks_can_be_taken_back(store: Storage) -> None:
    """A callback for waits may be set and removed at any time."""
    store.on_wait(lambda: None)
    enqueue_one(store)
    store.on_wait(None)
    enqueue_one(store)


def test_closing_twice_is_allowed(sqlite_path: Path, postgres_url: str) -> None:
    """A store may be closed more than once."""
    for url in (":memory:", str(sqlite_path), postgres_url):
        store = opened(url, create=True)
        store.close()
        store.close()


def test_a_watch_notices_anothers_commit(sqlite_path: Path, postgres_url: str) -> None:
    """After another connection's commit a watch says that something changed, and its times are sensible."""
    for url in (str(sqlite_path), postgres_url):
        watching, other = opened(url), opened(url)
        enqueue_one(other)
        watch = watching.watch()
        enqueue_one(other)
        assert watch.changed()
        assert not watch.replaced()
        assert 0 < watch.poll_interval() <= 5
        assert watch.fileno() is None or isinstance(watch.fileno(), int)
        watch.close()
        watching.close()
        other.close()


def test_a_watch_can_be_had_of_every_store(store: Storage) -> None:
    """Every store can be watched."""
    watch = store.watch()
    watch.changed()
    watch.close()


def test_tasks_enqueued_in_a_transaction_are_seen_by_it_alone(sqlite_path: Path, postgres_url: str) -> None:
    """Before the caller commits, nobody else sees the tasks (DX14)."""
    for url in (str(sqlite_path), postgres_url):
        mine, other = opened(url), opened(url)
        with mine.transaction() as transaction:
            [task_id] = mine.queue.enqueue([NewTask("t")], transaction=transaction).ids
            assert other.queue.get(task_id) is None
        assert other.queue.get(task_id) is not None
        mine.close()
        other.close()


FACETS = {
    "registry": interfaces.RegistrationBackend,
    "queue": interfaces.WorkQueue,
    "control": interfaces.ControlPlane,
}


def called_methods(facet: str) -> set[str]:
    """Return the methods of a facet that the conformance suite and its samples call."""
    files = [*Path(__file__).parent.glob("*.py"), *Path(__file__).parent.parent.glob("[ps]*s.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == facet
    }


@pytest.mark.parametrize("facet", FACETS)
def test_every_protocol_method_is_tested(facet: str) -> None:
    """Every method of a storage interface is called by this suite."""
    methods = {name for name, value in vars(FACETS[facet]).items() if callable(value) and not name.startswith("_")}
    assert methods - called_methods(facet) == set()


def test_the_suite_runs_on_every_kind_of_store(store: Storage, request: pytest.FixtureRequest) -> None:
    """The fixture gives a store of the kind that its name says."""
    kind = next(kind for kind in KINDS if kind in request.node.name)
    dialect, memory = kind.partition("-")[0], kind == "sqlite-memory"
    with store.transaction() as transaction:
        assert transaction.connection.dialect.name == dialect
    assert (store.url == ":memory:") is memory


def test_the_time_is_no_older_than_what_a_transaction_waited_for(postgresql: Storage) -> None:
    """A transaction that asks for the time after another statement is told the time then, not that of its beginning
    (CK09)."""
    passed = Statement("SELECT clock_timestamp() > transaction_timestamp() + interval '5 milliseconds'")

    def work(transaction: Transaction) -> tuple[datetime, datetime]:
        begun: datetime = transaction.value(Statement("SELECT transaction_timestamp()"))
        while not transaction.value(passed):
            pass
        return begun, transaction.now

    begun, asked = postgresql.database.write(work)  # type: ignore[attr-defined]
    assert asked > begun


def test_a_callers_transaction_is_one_on_a_connection_that_was_used_before(postgresql: Storage) -> None:
    """Fleet's own statements begin and end transactions themselves; a caller's, on the same connection, is undone."""

    def fail() -> None:
        with postgresql.transaction() as transaction:
            postgresql.queue.enqueue([NewTask("t")], transaction=transaction)
            raise ZeroDivisionError

    enqueue_one(postgresql)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(postgresql.queue.list()) == 1
