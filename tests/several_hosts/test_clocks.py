"""Hosts whose clocks are hours apart: only the server's counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.several_hosts.realm import HOUR, LEASE, MINUTE, Realm

pytestmark = pytest.mark.remote


ALLOWED = timedelta(minutes=5)
"""By how much a moment in a row may differ from that at which the test began."""

NEVER = "2000-01-01T00:00:00.000Z"
"""When maintenance has passed last, where it never has."""


def test_no_hosts_clock_is_seen(realm: Realm) -> None:
    """Workers, adapters and scalers on hosts whose clocks are hours apart: all of them work, none is taken for dead,
    and every time in every row is by the server's clock (CK01)."""
    before, began = times(realm), datetime.now(UTC)
    late, right, early = realm.add("late", -40 * MINUTE), realm.add("right"), realm.add("early", 3 * HOUR)
    hosts = (late, right, early)
    for host in hosts:
        realm.adapter_on(host, "--max-worker-groups=1", "--workers-per-group=2")
    realm.wait_adapters("late", "right", "early")
    realm.scaler_on(early, "--every=1s", "--target-workers=6")
    realm.wait_workers(6)
    assert [len(realm.workers_on(host)) for host in hosts] == [2, 2, 2]
    lives = realm.workers()
    tasks = realm.enqueue("tend", *[{"gate": "open"}] * 6)
    realm.wait_until(lambda: len(realm.stretches()) == 6, "each worker executes one")
    (due,) = realm.enqueue("tend", {"gate": "open"}, delay=2)
    beaten = realm.ledger.value("SELECT max(last_heartbeat) FROM worker_registry")
    older = "SELECT count(*) FROM worker_registry WHERE last_heartbeat < ?::timestamptz + make_interval(secs => ?)"
    realm.wait_until(lambda: realm.ledger.value(older, beaten, LEASE) == 0, "all beat for longer than a lease")
    for host in hosts:
        realm.scale_on(host, 6)
    realm.open_gate("open")
    realm.wait_finished([*tasks, due])
    realm.check_one_at_a_time([*tasks, due])
    realm.ledger.check_executed_once([*tasks, due])
    assert realm.workers() == lives
    for result in realm.results(tasks):
        ahead = (datetime.fromisoformat(result["clock"]) - began).total_seconds()
        assert abs(ahead - realm.hosts[result["host"]].offset) < 2 * MINUTE, "the host has the clock it should have"
    told = {each: datetime.fromisoformat(each[2]) for each in times(realm) - before}
    assert len(told) > 50
    wrong = [each for each, moment in told.items() if abs(moment - began) > ALLOWED and each[2] != NEVER]
    assert wrong == []


def times(realm: Realm) -> set[tuple[str, str, str]]:
    """Return table, column and value of every time in the database."""
    columns = """SELECT table_name, column_name FROM information_schema.columns JOIN pg_tables ON tablename = table_name
        WHERE table_schema = 'public' AND schemaname = 'public' AND data_type = 'timestamp with time zone'"""
    return {
        (table, column, moment)
        for table, column in realm.ledger.rows(columns)
        for (moment,) in realm.ledger.rows(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")
    }
