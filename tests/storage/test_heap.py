"""How PostgreSQL keeps what changes all the time: beats leave no index entries behind, and stay in their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

from fleet.domain.adapters import Limits, NewAdapter
from fleet.domain.group import NewGroup
from fleet.domain.worker import Beat
from fleet.maintenance import pruning
from fleet.storage.interfaces import MinuteCount, Storage
from tests.databases import opened
from tests.storage.plans import take_over
from tests.storage.samples import claim_one, enqueue_one, holder, join, nobody, process

pytestmark = pytest.mark.remote


ROUNDS = 10
DAY = 86_400.0
MEASURED = {"at": "2026-01-01T00:00:00.000Z", "cpu": 0.25, "note": "x" * 600}
_UPDATES = """SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s"""


class Server:
    """A store of its own on PostgreSQL that nobody vacuums, and a stranger that reads the server's counters."""

    def __init__(self, url: str, resources: ExitStack) -> None:
        self.store: Storage = resources.enter_context(closing(opened(url)))
        address = url.replace("+psycopg", "")
        self._stranger = resources.enter_context(psycopg.connect(address, autocommit=True))

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run plain SQL; return the rows, if there are any."""
        with closing(self._stranger.execute(sql.encode(), values)) as cursor:
            return cursor.fetchall() if cursor.description else []

    def updates(self, table: str) -> tuple[int, int]:
        """Return how many rows of a table were updated, and how many of them without touching an index."""
        with self.store.transaction() as transaction:
            transaction.connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        [(all_of_them, hot)] = self.execute(_UPDATES, table)
        return all_of_them, hot


@pytest.fixture
def server(new_postgres_url: str) -> Iterator[Server]:
    """Give a store of its own on PostgreSQL, without autovacuum."""
    with ExitStack() as resources:
        server = Server(new_postgres_url, resources)
        for (table,) in server.execute("SELECT relname FROM pg_stat_user_tables"):
            server.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield server


def beats_of_workers(store: Storage) -> Callable[[], object]:
    """Let a hundred workers be there, which beat all at once as those of a large host do."""
    them = [join(store, f"w{number:03}") for number in range(100)]
    return lambda: store.registry.beat([Beat(who.worker_id, who.incarnation, metadata=MEASURED) for who in them])


def beats_of_lone_workers(store: Storage) -> Callable[[], object]:
    """Let workers be there that have lost their supervisor."""
    them = [join(store, f"w{number:03}") for number in range(100)]
    return lambda: [store.registry.keep_lease(who.worker_id, who.incarnation) for who in them]


def beats_of_groups(store: Storage) -> Callable[[], object]:
    """Let groups be there, of which each beats and says that it listens."""
    names = [f"g{number:03}" for number in range(100)]
    for name in names:
        store.control.add_group(NewGroup(name, "default", 1, name, process(), 20.0, {}))
    watches = {name: store.watch(name) for name in names}
    return lambda: [(store.control.beat_group(name, process()), watch.attend()) for name, watch in watches.items()]


def beats_of_adapters(store: Storage) -> Callable[[], object]:
    """Let adapters be there."""
    limits = Limits(4, 2, {"gpu": 1}, {"mem": 64})
    tenures = [
        store.adapters.stand(NewAdapter(f"a{number:03}", "native", process(8), limits, 20.0)) for number in range(100)
    ]
    return lambda: [store.adapters.beat(tenure, limits) for tenure in tenures]


def leases_of_passes(store: Storage) -> Callable[[], object]:
    """Let a scaler's pass renew its lease again and again."""
    current = take_over(store)
    return lambda: [store.control.renew_pass(current, 30.0) for _ in range(100)]


def passes_of_maintenance(store: Storage) -> Callable[[], object]:
    """Let one maintenance pass after the other begin and end."""

    def act() -> None:
        for _ in range(50):
            current = store.control.begin_maintenance(holder("a:1", 1), 0.0, nobody)
            assert current is not None
            store.control.end_maintenance(current)

    return act


def statistics(store: Storage) -> Callable[[], object]:
    """Let keepers count what their workers have done."""
    counts = [MinuteCount("default", f"t{number}", 1, 0, 0.1, 0.1) for number in range(25)]
    return lambda: [store.control.add_minutes(counts) for _ in range(5)]


def progress(store: Storage) -> Callable[[], object]:
    """Let a task tell of its progress."""
    who = join(store)
    enqueue_one(store)
    task = claim_one(store, who)
    return lambda: [store.queue.progress(who.incarnation, task.fence, at / 100, "on its way") for at in range(100)]


BEATEN = {
    "worker_registry": (beats_of_workers, beats_of_lone_workers),
    "worker_group": (beats_of_groups,),
    "worker_adapter": (beats_of_adapters,),
    "scheduler": (leases_of_passes,),
    "maintenance": (passes_of_maintenance,),
    "work_minute": (statistics,),
    "work_queue": (progress,),
}


@pytest.mark.parametrize(("table", "begin"), [(table, begin) for table, all_ in BEATEN.items() for begin in all_])
def test_a_beat_touches_no_index(server: Server, table: str, begin: Callable[[Storage], Callable[[], object]]) -> None:
    """Of a thousand heartbeats, lease renewals or counts all but a few change their row within its page, without a new
    entry in any index (HOT), though nothing is vacuumed (DB07)."""
    beat = begin(server.store)
    # With the first one rows grow to the size that they stay at.
    beat()
    before = server.updates(table)
    for _ in range(ROUNDS):
        beat()
    changed, hot = (after - then for after, then in zip(server.updates(table), before, strict=True))
    assert changed >= 1_000
    assert changed - hot <= changed // 20


def test_who_holds_back_the_vacuum_is_seen(server: Server, new_postgres_url: str) -> None:
    """A session that keeps a transaction open is told with its process, its name and its time, until it ends; one
    without a snapshot, and those of Fleet itself, are not (DB07)."""
    address = new_postgres_url.replace("+psycopg", "")
    with psycopg.connect(address, application_name="forgotten") as stranger:
        assert server.store.open_transactions() == ()
        stranger.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        stranger.execute("SELECT 1")
        [found] = server.store.open_transactions()
        assert (found.pid, found.application) == (stranger.info.backend_pid, "forgotten")
        assert found.state == "idle in transaction"
        assert 0 <= found.seconds < 60
        stranger.rollback()
        assert server.store.open_transactions() == ()


def test_sqlite_has_no_transactions_to_tell_of(memory: Storage) -> None:
    """Where no server keeps transactions nobody is told of one."""
    assert memory.open_transactions() == ()


# Retention


def end_all(server: Server, count: int) -> None:
    """Let so many tasks be there that ended long ago."""
    enqueue_one(server.store)
    server.execute(
        f"""INSERT INTO work_queue (lane_id, queue, task, status, created_at, finished_at)
        SELECT lane_id, queue, task, 'done', '2020-01-01', '2020-01-01' FROM work_queue, generate_series(1, {count})"""
    )


def left(server: Server) -> int:
    """Return how many ended tasks are left."""
    [(number,)] = server.execute("SELECT count(*) FROM work_queue WHERE status = 'done'")
    return int(number)


def test_retention_deletes_in_small_transactions(server: Server) -> None:
    """No transaction of a prune deletes more than its batch, and one that is stopped between two leaves the rest to the
    next (DB04)."""
    end_all(server, 3_500)
    server.execute("CREATE TABLE test_deletes (xid xid8 DEFAULT pg_current_xact_id())")
    server.execute(
        """CREATE FUNCTION test_note() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO test_deletes DEFAULT VALUES; RETURN NULL; END $$"""
    )
    server.execute("CREATE TRIGGER test_note AFTER DELETE ON work_queue FOR EACH ROW EXECUTE FUNCTION test_note()")
    steps = pruning.prune(server.store, DAY)
    assert next(steps)["tasks"] == pruning.BATCH
    steps.close()
    assert left(server) == 3_500 - pruning.BATCH
    assert server.store.queue.prune(DAY, 500) == 500
    while server.store.queue.prune(DAY, 500):
        pass
    batches = [number for (number,) in server.execute("SELECT count(*) FROM test_deletes GROUP BY xid ORDER BY 1 DESC")]
    assert batches == [pruning.BATCH, 500, 500, 500, 500, 500]


def test_retention_and_readers_do_not_meet(server: Server, new_postgres_url: str) -> None:
    """A stranger's long read goes on through a prune, with its own state of things, and a row that a stranger holds
    keeps nothing else from going (DB04)."""
    end_all(server, 1_000)
    address = new_postgres_url.replace("+psycopg", "")
    with psycopg.connect(address) as reader, psycopg.connect(address) as holder:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SET LOCAL statement_timeout = 5000")
        before = reader.execute("SELECT count(*) FROM work_queue").fetchall()
        holder.execute("SELECT 1 FROM work_queue WHERE id = (SELECT max(id) FROM work_queue) FOR UPDATE")
        assert server.store.queue.prune(DAY, 1_000) == 999
        assert reader.execute("SELECT count(*) FROM work_queue").fetchall() == before
    assert server.store.queue.prune(DAY, 1_000) + server.store.queue.prune(DAY, 1_000) == 1
    assert left(server) == 0
