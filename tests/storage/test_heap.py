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
from fleet.storage.interfaces import MinuteCount, Storage
from tests.databases import opened
from tests.storage.plans import take_over
from tests.storage.samples import claim_one, enqueue_one, holder, join, nobody, process

ROUNDS = 10
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
