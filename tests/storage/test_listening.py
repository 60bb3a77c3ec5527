"""What a PostgreSQL server tells a keeper, and when it tells nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from fleet.clock import ManualClock
from fleet.domain.group import NewGroup
from fleet.domain.orders import OrderKind
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.storage.server import listening
from fleet.storage.server.listening import LISTENS_FOR, POLL, POLL_SETTLING, SETTLING, ListeningWatch
from tests.databases import opened
from tests.processes.running import wait_until
from tests.storage.samples import claim_one, enqueue_one, finish, join, process, success


class Keeper:
    """A group that listens, and somebody else who writes.

    Args:
        url: the database.
        clock: the clock that looks are due by.
    """

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url = url
        self.clock = clock
        self.store, self.other = opened(url), opened(url)
        self.store.control.add_group(NewGroup("g", "default", 1, "token", process(), 20, {}))
        watch = self.store.watch("g")
        assert isinstance(watch, ListeningWatch)
        self.watch = watch

    def begin(self) -> None:
        """Listen from now on; what was told before counts no more."""
        self.watch.attend()
        self.watch.changed()

    def is_told(self, act: Callable[[Storage], object]) -> bool:
        """Return whether what somebody else does is told: it has arrived before the answer to the next question."""
        self.watch.changed()
        act(self.other)
        self.store.now()
        return self.watch.changed()

    def execute(self, sql: str) -> Any:
        """Execute a statement as a stranger would."""
        address = make_url(self.url).set(drivername="postgresql").render_as_string(False)
        with psycopg.connect(address, autocommit=True) as connection:
            return connection.execute(sql.encode())


@pytest.fixture
def keeper(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    """Give a keeper whose clock stands still, so that no look is due by itself."""
    clock = ManualClock()
    monkeypatch.setattr(listening, "boottime", clock.boottime)
    keeper = Keeper(postgres_url, clock)
    yield keeper
    keeper.watch.close()
    keeper.store.close()
    keeper.other.close()


def test_a_task_is_told_while_somebody_is_idle(keeper: Keeper) -> None:
    """Whoever enqueues, in any language, is heard by a group that has said that somebody of it is idle."""
    keeper.begin()
    assert keeper.is_told(enqueue_one)
    assert keeper.is_told(lambda _: keeper.execute("INSERT INTO fleet_inbox (task) VALUES ('t')"))
    assert not keeper.is_told(lambda _: None)


def test_nothing_is_told_while_nobody_is_idle(keeper: Keeper) -> None:
    """Before a group has said so, and after that time is over, enqueuing sends no notification: it would take a lock of
    the whole server."""
    keeper.store.now()
    assert not keeper.is_told(enqueue_one)
    keeper.begin()
    keeper.execute("UPDATE worker_group SET listens_until = statement_timestamp() - interval '1 ms'")
    assert not keeper.is_told(enqueue_one)


def test_what_becomes_claimable_is_told_and_nothing_else(keeper: Keeper) -> None:
    """A task that is released, retried or due is told; claims and completions, and tasks that wait, are not."""
    keeper.begin()
    who = join(keeper.other, "w")
    claims: list[Any] = []
    assert keeper.is_told(enqueue_one)
    assert not keeper.is_told(lambda other: claims.append(claim_one(other, who)))
    assert keeper.is_told(
        lambda other: other.queue.release(who.incarnation, [claims[0].fence], interrupted=False, reason="test")
    )
    assert not keeper.is_told(lambda other: claims.append(claim_one(other, who)))
    assert not keeper.is_told(lambda other: finish(other, who, success(claims[1])))
    assert not keeper.is_told(lambda other: other.queue.enqueue([NewTask("t", delay=60)]))


def test_orders_are_told_always(keeper: Keeper) -> None:
    """Orders to workers, ends of groups and new sizes are told whether or not somebody is idle; beats are not."""
    worker = join(keeper.other, "w", group_id="g")
    keeper.store.now()
    assert keeper.is_told(lambda other: other.orders.give("w", worker.incarnation, OrderKind.GET_STATUS, reason="test"))
    assert not keeper.is_told(lambda other: other.control.beat_group("g", process()))
    assert keeper.is_told(lambda _: keeper.execute("UPDATE worker_group SET target_size = 0"))
    assert keeper.is_told(lambda other: other.control.stop_group("g", reason="test"))
    told = "SELECT status FROM worker_registry"
    assert keeper.execute(told).fetchone() == ("terminating",)


def test_a_look_is_due_by_itself(keeper: Keeper) -> None:
    """What was in a transaction when the group began to listen is found by looks that are frequent at first, then rare;
    saying again that somebody is idle makes them no more frequent, and is written rarely."""
    clock = keeper.clock
    keeper.begin()
    assert keeper.watch.poll_interval() == POLL_SETTLING
    clock.advance(POLL_SETTLING)
    assert keeper.watch.changed()
    clock.advance(POLL)
    assert keeper.watch.changed()
    assert keeper.watch.poll_interval() == POLL > SETTLING
    clock.advance(POLL - 0.01)
    assert not keeper.watch.changed()
    clock.advance(0.01)
    assert keeper.watch.changed()
    until = keeper.execute("SELECT listens_until FROM worker_group").fetchone()
    keeper.watch.attend()
    assert keeper.execute("SELECT listens_until FROM worker_group").fetchone() == until
    clock.advance(LISTENS_FOR / 2)
    keeper.watch.attend()
    assert keeper.execute("SELECT listens_until FROM worker_group").fetchone() > until
    assert keeper.watch.poll_interval() == POLL


def test_a_connection_that_ends_is_replaced_by_one_that_listens(keeper: Keeper) -> None:
    """After the server has ended the connection no descriptor is readable for ever, a look is due, and the connection
    of the next transaction listens."""
    keeper.begin()
    keeper.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%' AND pid IN "
        f"({keeper.watch._ears._connection.info.backend_pid})"
    )
    wait_until(keeper.watch.changed, "the end is noticed", 10, str)
    assert keeper.watch.fileno() is None
    keeper.store.now()
    assert keeper.watch.fileno() is not None
    assert keeper.is_told(enqueue_one)
