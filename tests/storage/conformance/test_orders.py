"""Orders to workers: given once, taken by the keeper of that life, answered once, void in time."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.group import CommandStatus
from fleet.domain.orders import ORDER_LIFETIME, OrderKind, OrderRecord
from fleet.maintenance.health import RESTART_COOLDOWN
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.conformance.test_health import contents, events, passed, tell
from tests.storage.samples import beat, join

RESTART = OrderKind.RESTART


def give(store: Storage, who: Any, kind: OrderKind = RESTART, **given: Any) -> OrderRecord | None:
    """Order something of a worker."""
    return store.orders.give(who.worker_id, who.incarnation, kind, **{"reason": "asked for", **given})


def given_to(store: Storage, who: Any, kind: OrderKind = RESTART, **given: Any) -> OrderRecord:
    """Order something of a worker, which must be accepted."""
    order = give(store, who, kind, **given)
    assert order is not None
    return order


def test_an_order_goes_through_its_life(store: Storage) -> None:
    """Given, taken, answered: each step is stored, and tells when; its giving is an event."""
    who = join(store)
    order = given_to(store, who, arguments={"a": 1})
    assert (order.status, order.kind, order.arguments) == (CommandStatus.PENDING, RESTART, {"a": 1})
    assert (order.expires_at - order.created_at).total_seconds() == ORDER_LIFETIME
    [taken] = store.orders.take([who.incarnation], "h:1")
    assert (taken.command_id, taken.status, taken.taken_by) == (order.command_id, CommandStatus.TAKEN, "h:1")
    assert store.orders.answer(order.command_id, reply={"at": "now"})
    [done] = store.orders.list()
    assert (done.status, done.reply, done.error_code) == (CommandStatus.SUCCEEDED, {"at": "now"}, None)
    assert None not in (done.taken_at, done.finished_at)
    assert events(store, "worker_order") == [("w", f"restart (command {order.command_id}): asked for")]


def test_an_order_is_answered_once(store: Storage) -> None:
    """A second answer, or one to what nobody has taken, changes nothing."""
    who = join(store)
    order = given_to(store, who)
    assert not store.orders.answer(order.command_id, reply={})
    store.orders.take([who.incarnation], "h:1")
    assert store.orders.answer(order.command_id, error_code=501, error_message="unsupported: no")
    before = contents(store)
    assert not store.orders.answer(order.command_id, reply={})
    assert contents(store) == before
    [failed] = store.orders.list()
    assert (failed.status, failed.error_code, failed.error_message) == (CommandStatus.FAILED, 501, "unsupported: no")


def test_one_open_order_of_a_kind_at_a_time(store: Storage) -> None:
    """While an order is open another of its kind is not given; one of another kind is, or to another worker."""
    who, other = join(store), join(store, "other")
    order = given_to(store, who)
    assert give(store, who) is None
    store.orders.take([who.incarnation], "h:1")
    assert give(store, who) is None
    assert give(store, who, OrderKind.GET_STATUS) is not None
    assert give(store, other) is not None
    store.orders.answer(order.command_id, reply={})
    assert given_to(store, who).command_id > order.command_id


def test_orders_are_for_active_workers(store: Storage) -> None:
    """Who drains, has ended, is of another life, or was never there gets no order."""
    who = join(store)
    assert store.orders.give("w", "another", RESTART, reason="r") is None
    assert store.orders.give("nobody", "none", RESTART, reason="r") is None
    store.registry.begin_drain("w", reason="r")
    assert give(store, who) is None
    store.registry.end("w", who.incarnation, reason="r")
    assert give(store, who) is None
    assert events(store, "worker_order") == []


def test_orders_to_another_life_are_not_taken(store: Storage) -> None:
    """An order belongs to one incarnation: the next one of the same name never carries it out."""
    who = join(store)
    given_to(store, who)
    store.registry.end("w", who.incarnation, reason="r")
    again = join(store)
    assert store.orders.take([again.incarnation], "h:1") == ()
    assert store.orders.take([], "h:1") == ()


def test_what_a_dead_keeper_took_is_taken_again(store: Storage) -> None:
    """An order whose taker never answered is given to the next keeper of that life, under the same id."""
    who = join(store)
    order = given_to(store, who)
    for taker in ("h:1", "h:2"):
        [taken] = store.orders.take([who.incarnation], taker)
        assert (taken.command_id, taken.taken_by) == (order.command_id, taker)
    store.orders.answer(order.command_id, reply={})
    assert store.orders.take([who.incarnation], "h:3") == ()


def test_orders_are_taken_in_the_order_given(store: Storage) -> None:
    """A keeper gets all orders to its workers, the oldest first."""
    first, second = join(store, "b"), join(store, "a")
    ids = [given_to(store, first).command_id, given_to(store, second).command_id]
    ids.append(given_to(store, first, OrderKind.CANCEL_TASK).command_id)
    taken = store.orders.take([first.incarnation, second.incarnation], "h:1")
    assert [order.command_id for order in taken] == ids
    assert [order.command_id for order in store.orders.list("b")] == [ids[2], ids[0]]


@pytest.mark.parametrize("taken", [False, True])
def test_an_order_is_void_in_time(store: Storage, taken: bool) -> None:
    """Just before its time it can be taken; from then on it is not carried out, and a pass marks it, once."""
    who = join(store)
    order = given_to(store, who)
    age(store, ORDER_LIFETIME - 5)
    assert store.orders.expire() == ()
    if taken:
        assert len(store.orders.take([who.incarnation], "h:1")) == 1
    age(store, 5.001)
    assert store.orders.take([who.incarnation], "h:2") == ()
    assert store.orders.expire() == (f"command {order.command_id} (restart of worker w) expired",)
    assert store.orders.expire() == ()
    assert not store.orders.answer(order.command_id, reply={})
    assert store.orders.list()[0].status is CommandStatus.EXPIRED


def test_the_end_of_an_order_to_the_millisecond(memory: Storage) -> None:
    """At the instant itself it is void."""
    who = join(memory)
    given_to(memory, who)
    age(memory, ORDER_LIFETIME - 0.001)
    assert len(memory.orders.take([who.incarnation], "h:1")) == 1
    assert memory.orders.expire() == ()
    age(memory, 0.001)
    assert memory.orders.take([who.incarnation], "h:1") == ()
    assert len(memory.orders.expire()) == 1


def test_a_large_worker_is_restarted_and_not_in_a_loop(store: Storage) -> None:
    """A pass orders one restart of a worker that fails by memory; if the next life does at once, none for a while."""
    who = join(store)
    tell(store, who, rss_mb=600)
    [unhealthy, ordered] = passed(store).cared
    assert "worker w is unhealthy" in unhealthy
    assert "worker w is to restart (command" in ordered
    [order] = store.orders.take([who.incarnation], "h:1")
    assert order.kind is RESTART
    store.orders.answer(order.command_id, reply={})
    store.registry.end("w", who.incarnation, reason="recycled")
    again = join(store)
    tell(store, again, rss_mb=600)
    assert len(passed(store).cared) == 1
    for ages, number in ((RESTART_COOLDOWN - 5, 1), (5.001, 2)):
        age(store, ages)
        beat(store, again)
        tell(store, again, rss_mb=600)
        passed(store)
        assert len(store.orders.list()) == number


def test_a_worker_that_is_unhealthy_otherwise_is_not_restarted(store: Storage) -> None:
    """A new process would fail the same tasks, and fill the same disk."""
    who = join(store)
    tell(store, who, recent={"seconds": 600, "done": 0, "failed": 50}, host={"disk_free_mb": 1, "disk_free_percent": 0})
    passed(store)
    assert store.orders.list() == ()


def test_answered_orders_are_pruned(store: Storage) -> None:
    """What has ended goes after its retention; open orders stay."""
    who = join(store)
    order = given_to(store, who)
    store.orders.take([who.incarnation], "h:1")
    store.orders.answer(order.command_id, reply={})
    given_to(store, who, lifetime=1_000_000)
    age(store, 100)
    assert store.health.prune(100.5) == 0
    assert store.health.prune(99.5) == 1
    assert [one.status for one in store.orders.list()] == [CommandStatus.PENDING]
