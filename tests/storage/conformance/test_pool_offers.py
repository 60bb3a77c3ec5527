"""What a pass reads of the pools: what live workers take, else what the last ones registered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.domain.demand import Offered, PoolOffer
from fleet.domain.group import Template
from fleet.storage.interfaces import SettingsChange, Storage
from fleet.storage.offers import MOST_OFFERS
from tests.ageing import age
from tests.storage.conformance.test_demand import look
from tests.storage.plans import begin
from tests.storage.samples import LEASE, Traced, execute, join, nobody, registration

PLAIN = Offered(frozenset({"t"}))
GPU = Offered(frozenset({"t"}), (), {"gpu": 1})


def offers(store: Storage, pool: str = "default") -> tuple[Offered, ...]:
    """Return what a pass of the pool believes that its workers take."""
    return next(one.offers for one in look(store, pool).pools if one.pool == pool)


def leave(store: Storage, *workers: str) -> None:
    """Let workers end."""
    for worker in workers:
        row = store.registry.get(worker)
        assert row is not None
        assert store.registry.end(worker, row.incarnation, reason="test")


def stored(store: Storage, pool: str = "default") -> Any:
    """Return what the pool's row remembers."""
    [row] = execute(store, "SELECT CAST(offers_json AS TEXT) AS kept FROM scheduler WHERE pool = :pool", pool=pool)
    return None if row["kept"] is None else json.loads(row["kept"])


def test_pools_tell_what_they_take(store: Storage) -> None:
    """Live workers of every pool tell what it takes, alike ones once; the slots are summed."""
    join(store, "a", slots=2)
    join(store, "b", slots=3)
    join(store, "c", pool="other", handlers=("t", "u"), queues=("q",), capabilities={"gpu": 2})
    assert look(store).pools == (
        PoolOffer("default", 5, (PLAIN,)),
        PoolOffer("other", 1, (Offered(frozenset({"t", "u"}), ("q",), {"gpu": 2}),)),
    )


def test_pools_that_overlap_are_all_told(store: Storage) -> None:
    """Which pools could take the same work is seen by each of them, with and without workers."""
    begin(store, pool="empty")
    join(store, "a", pool="empty")
    leave(store, "a")
    join(store, "b", slots=4)
    expected = (PoolOffer("default", 4, (PLAIN,)), PoolOffer("empty", 0, (PLAIN,)))
    assert look(store).pools == look(store, "empty").pools == expected


def test_who_is_past_its_lease_or_drains_takes_nothing(store: Storage) -> None:
    """A worker counts while it is active and within its lease; what it offered is remembered beyond."""
    begin(store)
    join(store, "a", slots=2)
    join(store, "b", slots=3)
    assert store.registry.begin_drain("b", reason="test")
    assert look(store).pools == (PoolOffer("default", 2, (PLAIN,)),)
    age(store, LEASE + 1)
    assert look(store).pools == (PoolOffer("default", 0, (PLAIN,)),)


def test_the_end_of_a_lease_belongs_to_it(memory: Storage) -> None:
    """A worker is believed at the last millisecond of its lease, and not after it."""
    join(memory, "a", slots=2)
    age(memory, LEASE)
    assert look(memory).pools[0].slots == 2
    age(memory, 0.001)
    assert look(memory).pools[0].slots == 0


def test_a_pool_is_remembered_when_its_workers_are_gone(store: Storage) -> None:
    """What its workers registered stands for a pool without workers; while some are here, what others offered before
    counts no more."""
    begin(store)
    join(store, "a", capabilities={"gpu": 1})
    leave(store, "a")
    assert offers(store) == (GPU,)
    join(store, "b")
    assert offers(store) == (PLAIN,)


def test_every_kind_of_worker_is_remembered(store: Storage) -> None:
    """A pool with workers of several kinds remembers each kind once, the newest first, whoever left before."""
    begin(store)
    join(store, "a", capabilities={"gpu": 1})
    join(store, "b")
    join(store, "c")
    leave(store, "a")
    leave(store, "b", "c")
    assert offers(store) == (PLAIN, GPU)


def test_who_comes_where_nobody_was_ends_what_was_remembered(store: Storage) -> None:
    """What is gone for good is no demand for ever: the first worker after none tells what there is from now on."""
    begin(store)
    join(store, "a", capabilities={"gpu": 1})
    join(store, "b")
    leave(store, "a", "b")
    join(store, "c")
    leave(store, "c")
    assert offers(store) == (PLAIN,)


def test_as_many_kinds_are_remembered_as_are_read(store: Storage) -> None:
    """What is remembered and what is read is bounded: the newest kinds, and those of most slots."""
    begin(store)
    for number in range(MOST_OFFERS + 3):
        join(store, f"w{number}", capabilities={"n": number + 1}, slots=number + 1)
    assert [one.capabilities["n"] for one in offers(store)] == list(range(MOST_OFFERS + 3, 3, -1))
    assert [one["capabilities"]["n"] for one in stored(store)] == list(range(MOST_OFFERS + 3, 3, -1))


def test_a_pool_without_a_row_has_none_made(store: Storage) -> None:
    """Workers that a person starts make no pool to be scaled; what they took is told by their own rows, newest first,
    when a scaler comes later."""
    join(store, "a", pool="other", handlers=("u",))
    join(store, "b", pool="other", handlers=("v",))
    execute(store, "UPDATE worker_registry SET started_at = :later WHERE worker_id = 'b'", later=soon(store))
    leave(store, "a", "b")
    assert execute(store, "SELECT pool FROM scheduler") == []
    expected = (Offered(frozenset({"v"})), Offered(frozenset({"u"})))
    assert offers(store, "other") == expected
    begin(store, pool="other")
    assert offers(store, "other") == expected
    assert offers(store) == ()


def soon(store: Storage) -> Any:
    """Return a time a while from now, as the database takes it."""
    with store.transaction() as transaction:
        moment = transaction.now.replace(year=transaction.now.year + 1)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.000Z" if transaction.is_sqlite else moment


def test_a_worker_that_comes_back_writes_nothing(traced: Traced) -> None:
    """Of a pool's row only what is new is written: a thousand workers alike write it once."""
    store, executed = traced
    begin(store)
    join(store, "a")
    executed.clear()
    join(store, "b")
    assert [one for one in executed if "offers_json" in one and one.lstrip().startswith("UPDATE")] == []
    join(store, "c", capabilities={"gpu": 1})
    assert len([one for one in executed if "offers_json" in one and one.lstrip().startswith("UPDATE")]) == 1


def test_what_an_earlier_version_kept_is_read_and_replaced(store: Storage) -> None:
    """One object is one kind of worker; the next worker makes a list of it."""
    begin(store)
    kept = {"handlers": ["t"], "queues": ["q"], "capabilities": {"gpu": 2}}
    execute(store, "UPDATE scheduler SET offers_json = :kept", kept=json.dumps(kept))
    assert offers(store) == (Offered(frozenset({"t"}), ("q",), {"gpu": 2}),)
    join(store, "a")
    assert stored(store) == [{"handlers": ["t"], "queues": [], "capabilities": {}}]


@pytest.mark.parametrize("odd", ["[]", "null", '"x"', '{"handlers": 3}', "7", '[1, {"queues": ["q"]}, []]'])
def test_offers_that_make_no_sense_are_none(store: Storage, odd: str) -> None:
    """A row that somebody spoiled is no offer, no error, and no hindrance to a worker."""
    begin(store)
    execute(store, "UPDATE scheduler SET offers_json = :offers", offers=odd)
    assert look(store).pools == (PoolOffer("default"),)
    join(store, "a")
    assert len(stored(store)) == 1


def test_what_makes_sense_in_a_spoiled_row_is_kept(store: Storage) -> None:
    """Of a list the readable kinds count, and of a kind what can be read of it."""
    begin(store)
    odd = [7, {"handlers": ["t"], "queues": "all", "capabilities": {"gpu": "x", "mem": 4}}]
    execute(store, "UPDATE scheduler SET offers_json = :offers", offers=json.dumps(odd))
    assert offers(store) == (Offered(frozenset({"t"}), (), {"mem": 4}),)


def test_a_pool_without_workers_ever_tells_its_template(store: Storage) -> None:
    """What is known of a pool that never had a worker is what its template names: queues, without their weights, what
    its workers offer, and how many tasks each executes."""
    template = Template("python", "/", {"queue": ["a=3", "b"], "capability": ["gpu=2"], "concurrency": 4})
    begin(store, 1, SettingsChange(template=template))
    snapshot = look(store)
    assert snapshot.pools == (PoolOffer("default", 0, (), ("a", "b"), {"gpu": 2}),)
    assert (snapshot.offered, snapshot.slots) == ({"gpu": 2}, 4)


@pytest.mark.parametrize(
    "options",
    [3, ["queue"], {"queue": 7, "capability": {"gpu": 1}, "concurrency": "many"}, {"concurrency": 0}, {"queue": None}],
)
def test_a_template_that_makes_no_sense_says_nothing(store: Storage, options: Any) -> None:
    """A template that somebody spoiled stops no pass, of its pool or another."""
    begin(store, pool="other")
    spoiled = json.dumps({"python": 1, "cwd": None, "options": options})
    execute(store, "UPDATE scheduler SET template_json = :spoiled", spoiled=spoiled)
    assert look(store).pools == (PoolOffer("default"), PoolOffer("other"))
    snapshot = look(store, "other")
    assert (snapshot.offered, snapshot.slots) == ({}, 1)


def test_a_worker_that_registers_twice_is_remembered_once(store: Storage) -> None:
    """Saying the same again, as after a lost answer, changes nothing."""
    begin(store)
    worker = registration("a")
    store.registry.register(worker, nobody)
    store.registry.register(worker, nobody)
    assert len(stored(store)) == 1
