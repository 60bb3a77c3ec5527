"""A host that ends between two instructions and tells nobody; it comes back as another boot of the same name."""

from __future__ import annotations

import pytest

from tests.several_hosts.realm import HOUR, MINUTE, MOVED_WITHIN, Realm

pytestmark = pytest.mark.remote


def test_a_host_that_dies_is_replaced_and_may_come_back(realm: Realm) -> None:
    """The tasks of a host without power move when their leases are over, a pass replaces its workers on other hosts;
    it comes back under its name, its adapter stands again, and nobody is taken for whom he is not (ST04, ST19)."""
    dead, left = realm.add("dead", -40 * MINUTE), realm.add("left", 3 * HOUR)
    room = ("--max-worker-groups=1", "--workers-per-group=2")
    realm.adapter_on(dead, *room)
    realm.wait_adapters("dead")
    realm.scale_on(left, 2)
    realm.wait_until(lambda: len(realm.workers_on(dead)) == 2, "two workers are on the first host")
    lives = realm.workers_on(dead)
    tasks = realm.enqueue("tend", *[{"gate": "open"}] * 2)
    realm.wait_until(lambda: realm.all_on(dead, tasks), "both tasks run there")
    realm.adapter_on(left, *room)
    realm.wait_adapters("dead", "left")
    realm.scaler_on(left, "--every=1s")
    dead.kill()
    realm.wait_until(lambda: realm.all_on(left, tasks), "both tasks run on the other host", MOVED_WITHIN)
    assert len(realm.workers_on(left)) == 2
    assert not realm.workers_on(dead)
    assert realm.adapters() == {"left"}
    dead.reboot()
    realm.adapter_on(dead, *room)
    realm.wait_adapters("dead", "left")
    realm.scale_on(left, 4)
    realm.wait_until(lambda: len(realm.workers_on(dead)) == 2, "two workers are on the first host again")
    assert not lives.keys() & realm.workers_on(dead).keys()
    realm.open_gate("open")
    more = realm.enqueue("tend", *[{"gate": "open"}] * 20)
    realm.wait_finished([*tasks, *more])
    realm.check_one_at_a_time([*tasks, *more])
    assert realm.ledger.value("SELECT count(*) FROM worker_registry WHERE status = 'lost'") == 2
    assert len(realm.workers()) == 4
