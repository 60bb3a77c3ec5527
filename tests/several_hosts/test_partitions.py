"""A host that is cut off from the database, in silence; it comes back, or it does not."""

from __future__ import annotations

import time

from tests.several_hosts.realm import HEARTBEAT, HOUR, LEASE, MINUTE, MOVED_WITHIN, Realm


def test_a_host_that_is_cut_off_stops_and_its_tasks_move(realm: Realm) -> None:
    """The tasks of a host that is cut off end there within the lease, and only then begin elsewhere, each under a newer
    token; healed, its group learns that it was given up and ends, and the next one there works."""
    cut, other = realm.add("cut", 3 * HOUR), realm.add("other", -40 * MINUTE)
    group = realm.worker_on(cut, processes=2)
    realm.wait_workers(2)
    tasks = realm.enqueue("tend", *[{"gate": "open"}] * 2)
    realm.wait_until(lambda: realm.all_on(cut, tasks), "both run on the host that will be cut off")
    realm.worker_on(other, processes=2)
    realm.wait_workers(4)
    lives = realm.workers_on(cut)
    cut.cut_off()
    at = time.monotonic()
    realm.wait_until(lambda: realm.all_on(other, tasks), "both run on the other host", MOVED_WITHIN)
    ends = [stretch.last - at for stretch in realm.stretches() if stretch.host == cut.name]
    assert len(ends) == 2
    assert all(LEASE - 3 * HEARTBEAT < end < LEASE for end in ends), f"they ended after {ends} s"
    realm.wait_until(lambda: not realm.workers_on(cut), "the workers there are lost")
    cut.heal()
    assert group.wait() == 1
    assert group.text.count("was taken for lost while nobody beat for it") == 1
    assert not cut.processes()
    realm.worker_on(cut)
    realm.wait_workers(3)
    assert not lives.keys() & realm.workers_on(cut).keys()
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.check_one_at_a_time(tasks)
    assert {result["host"] for result in realm.results(tasks)} == {other.name}
