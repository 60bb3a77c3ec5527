"""The hosts themselves: that they are as far from each other as the other tests of this folder take them to be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.processes.procfs import is_alive
from tests.processes.running import wait_until
from tests.several_hosts.host import ROOT
from tests.several_hosts.network import LOCKS, Network, command, new_network
from tests.several_hosts.realm import HOUR, MINUTE, Realm

ABOUT_ITSELF = """
import json, os, socket, time
print(json.dumps({"name": socket.gethostname(), "pid": os.getpid(), "clock": time.time(), "since": time.monotonic(),
    "boot": time.clock_gettime(time.CLOCK_BOOTTIME), "boot_id": open("/proc/sys/kernel/random/boot_id").read()}))
"""
CALLING = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"

pytestmark = pytest.mark.remote

DOOMED = """
import sys, time
from pathlib import Path
from tests.processes.procfs import is_alive
from tests.processes.running import wait_until
from tests.several_hosts.host import Host
from tests.several_hosts.network import new_network

with new_network() as network:
    host = Host(network, "doomed", 0, 0, Path(sys.argv[1]))
    host.boot()
    print(network.number, host.pid, flush=True)
    sys.stdin.read()
"""


def test_hosts_have_names_clocks_and_processes_of_their_own(realm: Realm) -> None:
    """Hosts differ in name, wall clock, boot and processes; their other clocks run together."""
    told = []
    for name, offset in (("late", -40 * MINUTE), ("early", 3 * HOUR)):
        running = realm.start_on(realm.add(name, offset), "-c", ABOUT_ITSELF)
        assert running.wait() == 0, running.text
        told.append((json.loads(running.text), time.time() + offset, name))
    for itself, clock, name in told:
        assert itself["name"] == name
        assert abs(itself["clock"] - clock) < MINUTE
        assert abs(itself["since"] - time.monotonic()) < MINUTE
        assert abs(itself["boot"] - time.clock_gettime(time.CLOCK_BOOTTIME)) < MINUTE
        assert itself["pid"] < 10
    assert told[0][0]["boot_id"] != told[1][0]["boot_id"]


def test_a_cut_is_silent(realm: Realm, network: Network) -> None:
    """A host that is cut off is refused nothing and told nothing: it waits, until it is healed."""
    host = realm.add("cut")
    port = realm.database.rpartition(":")[2].partition("/")[0]
    call = ("-c", CALLING, network.address, port)
    assert realm.start_on(host, *call).wait() == 0
    host.cut_off()
    waiting = realm.start_on(host, *call)
    assert waiting.wait() == 1
    assert "TimeoutError: timed out" in waiting.text
    host.heal()
    assert realm.start_on(host, *call).wait() == 0


def test_nothing_is_left_of_a_test_that_was_killed(network: Network, tmp_path: object) -> None:
    """The hosts of a test process that was killed end with it, and the next one removes their names."""
    with subprocess.Popen(
        [sys.executable, "-c", DOOMED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as doomed:
        assert doomed.stdout is not None
        number, pid = map(int, doomed.stdout.readline().split())
        left = f"fleet{number}-doomed"
        assert number != network.number
        assert left in command("ip", "netns", "list")
        doomed.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the host has ended")
    assert (LOCKS / f"fleet-network-{number}").exists()
    with new_network():
        assert left not in command("ip", "netns", "list")
