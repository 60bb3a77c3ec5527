"""A host that is cut off from the database, in silence; it comes back, or it does not."""

from __future__ import annotations

import signal
import time

import pytest

from tests.several_hosts.realm import HEARTBEAT, HOUR, LEASE, MINUTE, MOVED_WITHIN, Realm

pytestmark = pytest.mark.remote


FREED_WITHIN = 25.0
"""Seconds: a server gives a silent client up after 11; the rest is allowance for a loaded machine."""


def test_a_host_that_is_cut_off_stops_and_its_tasks_move(realm: Realm) -> None:
    """The tasks of a host that is cut off end there within the lease, and only then begin elsewhere, each under a newer
    token; healed, its group learns that it was given up and ends, and the next one there works (ST19, DX09)."""
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


def test_what_a_host_had_locked_is_free_soon_after_it_is_cut_off(realm: Realm) -> None:
    """Rows that a handler of a host had locked when it was cut off are free some ten seconds later, so that its task
    is done elsewhere at its next attempt; of its transaction nothing is left."""
    cut, other = realm.add("cut", -40 * MINUTE), realm.add("other")
    realm.ledger.write("CREATE TABLE test_effects (task bigint)")
    realm.ledger.write("CREATE TABLE test_row (task bigint)")
    realm.ledger.write("INSERT INTO test_row VALUES (0)")
    realm.worker_on(cut)
    realm.wait_workers(1)
    tasks = realm.enqueue("tend_with_rows", {"gate": "open"})
    realm.wait_until(lambda: realm.all_on(cut, tasks), "it has locked its row")
    realm.worker_on(other)
    realm.wait_workers(2)
    cut.cut_off()
    at = time.monotonic()
    realm.wait_until(lambda: realm.all_on(other, tasks), "it has locked its row on the other host", FREED_WITHIN)
    assert time.monotonic() - at > LEASE - HEARTBEAT
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.check_one_at_a_time(tasks)
    assert realm.ledger.rows("SELECT task FROM test_effects") == [(task,) for task in tasks]


def test_a_result_that_comes_after_its_task_has_moved_counts_for_nothing(realm: Realm) -> None:
    """What a host that is cut off comes to the end of meanwhile is offered when it is healed, and refused: its task has
    a newer token by then, and goes on where it is (DX04)."""
    cut, other = realm.add("cut", 3 * HOUR), realm.add("other")
    realm.worker_on(cut)
    realm.wait_workers(1)
    tasks = realm.enqueue("tend", {"gate": "first"})
    realm.wait_until(lambda: realm.all_on(cut, tasks), "it runs on the host that will be cut off")
    realm.worker_on(other)
    realm.wait_workers(2)
    cut.cut_off()
    realm.open_gate("first")
    path = realm.directory / "gates" / "first"
    realm.wait_until(lambda: realm.is_over_on(cut, tasks), "it comes to its end there")
    path.unlink()
    realm.wait_until(lambda: realm.all_on(other, tasks), "it runs on the other host", MOVED_WITHIN)
    cut.heal()
    realm.wait_until(lambda: "result is dropped" in cut.text(), "the late result is dropped", FREED_WITHIN)
    assert realm.status(tasks[0]) == "running"
    realm.open_gate("first")
    realm.wait_finished(tasks)
    realm.check_one_at_a_time(tasks)
    assert realm.results(tasks)[0]["host"] == other.name


def test_a_short_cut_costs_nothing(realm: Realm) -> None:
    """A host that is cut off for two heartbeats goes on with what it executes, under the same tokens and in the same
    lives (DX09, ST18)."""
    cut, other = realm.add("cut", -40 * MINUTE), realm.add("other", 3 * HOUR)
    realm.worker_on(cut, "--lease=12", processes=2)
    realm.worker_on(other, "--lease=12")
    realm.wait_workers(3)
    tasks = realm.enqueue("tend", *[{"gate": "open"}] * 3)
    realm.wait_executing(tasks)
    lives = realm.workers()
    cut.cut_off()
    missing = "SELECT count(*) FROM worker_registry WHERE last_heartbeat < clock_timestamp() - make_interval(secs => ?)"
    realm.wait_until(lambda: realm.ledger.value(missing, 3 * HEARTBEAT) == 2, "its beats are missing")
    cut.heal()
    realm.wait_until(lambda: realm.ledger.value(missing, 2 * HEARTBEAT) == 0, "they come again")
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.ledger.check_executed_once(tasks)
    assert realm.workers() == lives


def test_a_fleet_that_is_cut_off_as_a_whole_comes_back(realm: Realm) -> None:
    """Where nobody else is left to give a group up, its workers end what they execute all the same, and it goes on by
    itself when it is healed: the task is executed again under a newer token (ST18)."""
    cut = realm.add("cut", 3 * HOUR)
    group = realm.worker_on(cut, processes=2)
    realm.wait_workers(2)
    tasks = realm.enqueue("tend", {"gate": "open"})
    realm.wait_until(lambda: realm.all_on(cut, tasks), "it runs")
    cut.cut_off()
    at = time.monotonic()
    realm.wait_until(lambda: "fenced" in cut.text(), "its worker is ended", LEASE)
    cut.heal()
    realm.wait_until(lambda: len(realm.stretches(tasks[0])) == 2, "it runs again")
    assert realm.stretches(tasks[0])[0].last - at < LEASE
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.check_one_at_a_time(tasks)
    realm.wait_workers(2)
    assert not group.ended()


def test_a_worker_without_its_supervisor_ends_itself_when_it_is_cut_off(realm: Realm) -> None:
    """A worker that has lost its supervisor, and beats for itself while it finishes, ends itself within its lease when
    its host is cut off: nobody else is there to end it before its task moves (PD08)."""
    cut, other = realm.add("cut", 3 * HOUR), realm.add("other")
    group = realm.worker_on(cut)
    realm.wait_workers(1)
    tasks = realm.enqueue("tend", {"gate": "open"})
    realm.wait_until(lambda: realm.all_on(cut, tasks), "it runs on the host that will be cut off")
    realm.worker_on(other)
    realm.wait_workers(2)
    group.signal(signal.SIGKILL)
    realm.wait_until(lambda: realm.workers_on(cut, "terminating"), "the worker has noticed")
    cut.cut_off()
    at = time.monotonic()
    realm.wait_until(lambda: realm.all_on(other, tasks), "it runs on the other host", MOVED_WITHIN)
    assert realm.stretches(tasks[0])[0].last - at < LEASE
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.check_one_at_a_time(tasks)
    assert realm.results(tasks)[0]["host"] == other.name
