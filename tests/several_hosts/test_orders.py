"""Scalers and adapters on several hosts: orders that meet a cut, and passes that meet each other."""

from __future__ import annotations

import signal

import pytest

from fleet.process import state
from tests.processes.running import Running
from tests.several_hosts.host import Host
from tests.several_hosts.realm import HOUR, MINUTE, MOVED_WITHIN, Realm

pytestmark = pytest.mark.remote


EVER_REGISTERED = "SELECT count(*) FROM worker_registry"


@pytest.mark.parametrize("step", ["adapter.taken", "adapter.spawned", "adapter.noted"])
def test_a_start_whose_adapter_is_cut_off_is_carried_out_once(realm: Realm, step: str) -> None:
    """A start whose adapter was cut off before, in or after the launch: when its time is over another host's adapter
    gets the order; healed, the first host adds nobody to them, and goes on taking orders (AD01, LF06)."""
    cut, other = realm.add("cut", 3 * HOUR), realm.add("other", -40 * MINUTE)
    once = realm.directory / "stopped-once"
    doomed = realm.adapter_on(cut, "--priority=5", FLEET_FAULTS=f"{step}=once:{once}:stop")
    realm.adapter_on(other)
    realm.wait_adapters("cut", "other")
    realm.scaler_on(other, "--every=0.5s", "--target-workers=2")
    realm.wait_until(lambda: once.exists() and state(doomed.pid) == "T", "the order is half carried out")
    cut.cut_off()
    doomed.signal(signal.SIGCONT)
    realm.wait_until(lambda: "cut" not in realm.adapters(), "the adapter is lost", MOVED_WITHIN)
    let_orders_end(realm)
    realm.wait_until(lambda: len(realm.workers_on(other)) == 2, "two workers are on the other host", MOVED_WITHIN)
    realm.wait_until(lambda: not realm.workers_on(cut), "nobody counts there", MOVED_WITHIN)
    cut.heal()
    successor = realm.adapter_on(cut, "--priority=5")
    realm.wait_until(lambda: "is ready" in successor.text, "another process stands for the adapter")
    realm.wait_until(lambda: left_over(cut, doomed, successor) == [], "all that was launched there is gone")
    assert settled(realm) == (2, 2)
    realm.scale_on(other, 4)
    realm.wait_until(lambda: len(realm.workers_on(cut)) == 2, "the first host takes orders again")
    tasks = realm.enqueue("tend", *[{"gate": "open"}] * 8)
    realm.wait_until(lambda: len(realm.stretches()) == 4, "each worker executes one")
    realm.open_gate("open")
    realm.wait_finished(tasks)
    realm.ledger.check_executed_once(tasks)
    assert settled(realm) == (4, 4)


def let_orders_end(realm: Realm) -> None:
    """Let a minute pass for what is ordered and not done."""
    realm.ledger.write(
        "UPDATE adapter_command SET expires_at = expires_at - interval '1 minute' WHERE status IN ('pending', 'taken')"
    )
    realm.ledger.write(
        "UPDATE worker_group SET boot_deadline_at = boot_deadline_at - interval '1 minute' WHERE contacted_at IS NULL"
    )


def left_over(host: Host, *adapters: Running) -> list[int]:
    """Return what runs on a host besides its adapters."""
    return sorted(set(host.processes()) - {adapter.pid for adapter in adapters})


def settled(realm: Realm) -> tuple[int, int]:
    """Return how many workers live, and how many are counted on, by the groups."""
    wanted = (
        "SELECT coalesce(sum(target_size), 0) FROM worker_group WHERE status IN ('requested', 'launching', 'running')"
    )
    return len(realm.workers()), realm.ledger.value(wanted)


def test_scalers_on_hosts_with_different_clocks_make_one_pass_at_a_time(realm: Realm) -> None:
    """Scalers that loop on three hosts whose clocks are hours apart start as many workers as are wanted and never one
    more, whoever of them is cut off, and follow a change that was made on any of them (SC12)."""
    late, right, early = realm.add("late", -40 * MINUTE), realm.add("right"), realm.add("early", 3 * HOUR)
    for host in (right, early):
        realm.adapter_on(host, "--workers-per-group=2")
    realm.wait_adapters("right", "early")
    for host in (late, right, early):
        realm.scaler_on(host, "--every=0.2s", "--target-workers=5")
    realm.wait_until(lambda: settled(realm) == (5, 5), "five workers are there")
    late.cut_off()
    epoch = "SELECT epoch FROM scheduler WHERE pool = 'default'"
    seen = realm.ledger.value(epoch)
    realm.wait_until(lambda: realm.ledger.value(epoch) > seen + 5, "the others make passes")
    assert settled(realm) == (5, 5)
    realm.scale_on(early, 7)
    realm.wait_until(lambda: settled(realm) == (7, 7), "seven workers are there")
    late.heal()
    realm.scale_on(right, 2)
    realm.wait_until(lambda: settled(realm) == (2, 2), "two workers are left")
    assert realm.ledger.value(EVER_REGISTERED) == 7
    assert realm.ledger.value("SELECT count(*) FROM worker_registry WHERE status = 'lost'") == 0
