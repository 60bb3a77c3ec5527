"""A pool of connections between Fleet and its server: what is kept, what is set, what is heard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text

from fleet.domain.group import NewGroup
from fleet.domain.task import NewTask
from fleet.errors import DatabaseError
from fleet.storage.copying.shapes import shapes
from fleet.storage.interfaces import Storage
from fleet.storage.server import session
from fleet.storage.server.listening import POLL_DEAF, POLL_SETTLING
from fleet.storage.sql import Statement
from fleet.storage.store import SqlStorage
from tests.databases import opened
from tests.pgbouncer import Bouncer, PoolMode, pgbouncer
from tests.postgres import PostgresServer
from tests.processes.running import wait_until
from tests.storage.samples import claim_one, enqueue_one, finish, join, process, row, success

pytestmark = pytest.mark.remote


MODES: tuple[PoolMode, ...] = ("transaction", "session")


@dataclass
class Pooled:
    """A database behind a pool.

    Attributes:
        url: the database through the pool.
        direct: the database itself.
        bouncer: the pool.
    """

    url: str
    direct: str
    bouncer: Bouncer

    def connect(self, *, direct: bool = False) -> psycopg.Connection[Any]:
        """Open a connection as a stranger would."""
        address = make_url(self.direct if direct else self.url).set(drivername="postgresql")
        return psycopg.connect(address.render_as_string(False), autocommit=True)


@pytest.fixture(scope="module", params=MODES)
def bouncer(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Bouncer]:
    """Give a pool of each mode before the session's server."""
    with pgbouncer(postgres, request.param) as bouncer:
        yield bouncer


@pytest.fixture(scope="module")
def in_transactions(postgres: PostgresServer) -> Iterator[Bouncer]:
    """Give a pool in transaction mode, of two connections to each database."""
    with pgbouncer(postgres, "transaction", default_pool_size="2") as bouncer:
        yield bouncer


@pytest.fixture
def pooled(bouncer: Bouncer, new_postgres_url: str) -> Pooled:
    """Give a fleet behind a pool of each mode."""
    return Pooled(bouncer.url(new_postgres_url), new_postgres_url, bouncer)


@pytest.fixture
def shared(in_transactions: Bouncer, new_postgres_url: str) -> Pooled:
    """Give a fleet behind a pool whose connections all share."""
    return Pooled(in_transactions.url(new_postgres_url), new_postgres_url, in_transactions)


def test_tasks_are_executed_through_a_pool(pooled: Pooled) -> None:
    """Stores that work at the same time enqueue, claim and finish through a pool, more often than it takes until a
    driver prepares its statements."""
    stores = [opened(pooled.url) for _ in range(3)]
    try:
        who = join(stores[0])
        for number in range(12):
            enqueue_one(stores[number % 3])
            assert finish(stores[number % 2], who, success(claim_one(stores[0], who))) == 1
    finally:
        for store in stores:
            store.close()


def test_a_new_database_is_made_through_a_pool(bouncer: Bouncer, postgres: PostgresServer) -> None:
    """The schema is made through a pool."""
    url = postgres.create_database()
    try:
        store = opened(bouncer.url(url), create=True)
        enqueue_one(store)
        store.close()
    finally:
        postgres.drop_database(url)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through a pool"])
@pytest.mark.parametrize(("chosen", "own"), [(None, "off"), ("on", "on"), ("local", "local")])
def test_whether_commits_wait_an_administrator_may_choose(
    in_transactions: Bouncer, new_postgres_url: str, chosen: str | None, own: str, direct: bool
) -> None:
    """What was chosen for the database counts for claims, beats and results; without a choice they do not wait for the
    disk, and what is enqueued does."""
    pooled = Pooled(in_transactions.url(new_postgres_url), new_postgres_url, in_transactions)
    if chosen is not None:
        with pooled.connect(direct=True) as administrator:
            name = make_url(new_postgres_url).database
            administrator.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {chosen}'.encode())
    store = opened(pooled.direct if direct else pooled.url)
    assert isinstance(store, SqlStorage)
    try:
        said = Statement("SELECT current_setting('synchronous_commit')")
        found = [store.database.write(lambda one: one.value(said), durable=durable) for durable in (False, True)]
    finally:
        store.close()
    assert found == [own, "on"]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through a pool"])
def test_times_are_read_in_whatever_style_a_server_writes_them(
    in_transactions: Bouncer, new_postgres_url: str, direct: bool
) -> None:
    """A login or database whose DateStyle is another one costs nothing."""
    pooled = Pooled(in_transactions.url(new_postgres_url), new_postgres_url, in_transactions)
    with pooled.connect(direct=True) as administrator:
        name = make_url(new_postgres_url).database
        administrator.execute(f"ALTER DATABASE \"{name}\" SET datestyle = 'SQL, DMY'".encode())
    store = opened(pooled.direct if direct else pooled.url)
    try:
        who = join(store)
        enqueue_one(store)
        assert finish(store, who, success(claim_one(store, who))) == 1
    finally:
        store.close()


def test_nothing_is_left_in_a_shared_session(shared: Pooled) -> None:
    """Whoever gets a session of the server after Fleet finds it as the server's own settings make it: no commit that
    does not wait, no timeout, no lock and no prepared statement is left to strangers."""
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
    with shared.connect() as stranger:
        before = [stranger.execute(f"SHOW {name}".encode()).fetchone() for name in names]
        store = opened(shared.url)
        who = join(store)
        for _ in range(12):
            enqueue_one(store)
            finish(store, who, success(claim_one(store, who)))
            with store.transaction() as transaction:
                enqueue_in(store, transaction)
        for _ in range(4):
            assert [stranger.execute(f"SHOW {name}".encode()).fetchone() for name in names] == before
            assert stranger.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        store.close()


def enqueue_in(store: Storage, transaction: Any) -> None:
    """Enqueue a task in an open transaction."""
    store.queue.enqueue([NewTask("later")], transaction=transaction)


SETTINGS = (
    "SELECT current_setting('TimeZone'), current_setting('lock_timeout'), current_setting('statement_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit')"
)


@pytest.mark.parametrize("through", ["server", "pool"])
def test_what_holds_in_a_transaction(shared: Pooled, through: str) -> None:
    """In every transaction the zone, the timeouts and the pressing to disk are as they have to be, whether a pool is in
    between or not; a caller's own transaction has no timeouts but the server's."""
    store: Any = opened(shared.direct if through == "server" else shared.url)
    statement = session_statement()
    read = store.database.read(lambda transaction: transaction.rows(statement))[0]
    own = store.database.write(lambda transaction: transaction.rows(statement))[0]
    durable = store.database.write(lambda transaction: transaction.rows(statement), durable=True)[0]
    with store.transaction() as transaction:
        lent = transaction.rows(statement)[0]
    store.close()
    assert read[:4] == ("UTC", "1s", "1min", "5s")
    assert own == ("UTC", "1s", "1min", "5s", "off")
    assert durable == ("UTC", "10s", "0", "5s", "on")
    assert lent == ("UTC", "10s", "0", "0", "on")


def session_statement() -> Any:
    """Return the statement that reads the settings in force."""
    from fleet.storage.sql import Statement

    return Statement(SETTINGS)


@pytest.mark.parametrize("through", ["server", "pool"])
def test_an_administrators_timeouts_count(shared: Pooled, through: str) -> None:
    """Timeouts that are set for the database, shorter or longer than Fleet's, are left as they are."""
    with shared.connect(direct=True) as administrator:
        name = make_url(shared.direct).database
        for setting in ("statement_timeout = '7min'", "idle_in_transaction_session_timeout = '3s'"):
            administrator.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())
    store: Any = opened(shared.direct if through == "server" else shared.url)
    own = store.database.write(lambda transaction: transaction.rows(session_statement()))[0]
    with store.transaction() as transaction:
        lent = transaction.rows(session_statement())[0]
    store.close()
    assert own[2:4] == ("7min", "3s")
    assert lent[2:4] == ("7min", "3s")


def test_times_do_not_depend_on_the_session(shared: Pooled) -> None:
    """Whatever time zone a shared session is in, times are written, read and copied as they are (CK01)."""
    with shared.connect(direct=True) as administrator:
        name = make_url(shared.direct).database
        administrator.execute(f"""ALTER DATABASE "{name}" SET TimeZone = 'Asia/Kathmandu'""".encode())
        moment = datetime(2031, 1, 31, 23, 59, 59, 999000, tzinfo=UTC)
        store = opened(shared.url)
        task = enqueue_one(store, at=moment)
        assert row(store, task).available_at == moment
        store.close()
    with shared.connect() as stranger:
        [queue] = [shape for shape in shapes() if shape.table == "work_queue"]
        [written] = [field for field in queue.fields if field.name == "available_at"]
        assert stranger.execute("SHOW TimeZone").fetchone() == ("Asia/Kathmandu",)
        copied = stranger.execute(f"SELECT {written.on_postgresql} FROM work_queue".encode()).fetchone()
        assert copied == ("2031-01-31T23:59:59.999Z",)


def test_who_listens_through_a_pool(pooled: Pooled) -> None:
    """In session mode a keeper is told of tasks; in transaction mode it knows that it is not, says so, and looks often,
    and asks nobody to notify."""
    store, other = opened(pooled.url), opened(pooled.url)
    try:
        store.control.add_group(NewGroup("g", "default", 1, "token", process(), 20, {}))
        watch = store.watch("g")
        watch.attend()
        watch.attend()
        watch.changed()
        if watch.obstacle() is None:
            assert watch.poll_interval() == POLL_SETTLING
            enqueue_one(other)
            assert watch.fileno() is not None
            wait_until(watch.changed, "the task is told of", 10, str)
        else:
            assert "PgBouncer in transaction mode" in str(watch.obstacle())
            assert watch.poll_interval() == POLL_DEAF
            assert watch.fileno() is None
        modes = {row["name"]: row["pool_mode"] for row in pooled.bouncer.ask("SHOW DATABASES")}
        assert (watch.obstacle() is None) == (pooled.bouncer.mode == "session"), modes
    finally:
        store.close()
        other.close()


def test_statement_mode_is_refused(postgres: PostgresServer, new_postgres_url: str) -> None:
    """A pool that gives each statement another session is refused in one line, and nothing is changed."""
    with pgbouncer(postgres, "statement") as bouncer:
        with pytest.raises(DatabaseError, match="statement pooling") as refused:
            opened(bouncer.url(new_postgres_url))
        assert "\n" not in str(refused.value)


def test_a_callers_transaction_through_a_pool(pooled: Pooled) -> None:
    """A task that is enqueued in a caller's transaction exists if and only if the caller's own rows do."""
    store = opened(pooled.url)
    try:
        with store.transaction() as transaction:
            transaction.connection.execute(text("CREATE TABLE mine (id int)"))
            enqueue_in(store, transaction)
        with store.transaction() as transaction:
            transaction.connection.execute(text("INSERT INTO mine VALUES (1)"))
            enqueue_in(store, transaction)
            transaction.connection.rollback()
        with pooled.connect(direct=True) as stranger:
            assert stranger.execute("SELECT (SELECT count(*) FROM mine), count(*) FROM work_queue").fetchone() == (0, 1)
    finally:
        store.close()


def test_settings_take_one_turn(monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    """A new connection is set up by one statement."""
    said: list[str] = []
    execute = psycopg.Cursor.execute
    monkeypatch.setattr(
        psycopg.Cursor, "execute", lambda cursor, query, *rest: said.append(str(query)) or execute(cursor, query, *rest)
    )
    with psycopg.connect(make_url(postgres_url).set(drivername="postgresql").render_as_string(False)) as connection:
        assert session.prepare(connection) is session.DIRECT
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert not connection.autocommit
    assert len(said) == 1
