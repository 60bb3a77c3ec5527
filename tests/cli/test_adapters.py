"""Adapters in `fleet adapters` and `fleet status`: who is lost, who is paused, and what waits for them."""

from __future__ import annotations

from dataclasses import replace

from fleet.domain.adapters import Limits, NewAdapter, Tenure
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.plan import StartGroup
from fleet.process import identify
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.cli.conftest import Command
from tests.cli.test_registry import dead
from tests.storage.plans import applied, plan
from tests.storage.samples import execute

GOES_ON = "(fleet-adapter webhook --adapter-id cloud goes on with it)"


def stand(storage: Storage, process: ProcessIdentity | None = None) -> Tenure:
    """Let this very process, or another, stand for the adapter `cloud`."""
    return storage.adapters.stand(NewAdapter("cloud", "webhook", process or identify(), Limits(4), 30.0))


def order(storage: Storage) -> str:
    """Let a pass order one worker from `cloud`; return the group."""
    [group_id] = applied(storage, plan(starts=(StartGroup("cloud", 1),))).groups
    return group_id


def states(fleet: Command) -> list[str]:
    """Return the states of all adapters."""
    return [row["state"] for row in fleet("adapters", "--json").document]


def test_a_fleet_without_adapters_says_nothing_of_them(fleet: Command, database: Storage) -> None:
    """The status of a fleet whose scaler starts workers itself has no line for adapters."""
    done = fleet("status")
    assert (done.code, "adapters " in done.out) == (0, False)
    assert fleet("adapters").out == "no adapters (a scaler starts workers of its own host without one)\n"


def test_status_of_an_adapter_from_its_start_to_its_end(fleet: Command, database: Storage) -> None:
    """An adapter that is there, or has left, is counted, and no note is made of it."""
    tenure = stand(database)
    done = fleet("status")
    assert (done.code, "adapters 1 ready\n" in done.out, "note: " in done.out) == (0, True, False)
    assert fleet("status", "--json").document["adapters"]["ready"] == 1
    database.adapters.leave(tenure)
    done = fleet("status")
    assert (done.code, "adapters 1 away\n" in done.out, "note: " in done.out) == (0, True, False)
    assert states(fleet) == ["away"]


def test_status_of_an_adapter_that_was_killed(fleet: Command, database: Storage) -> None:
    """A killed adapter is a note at once, and a problem with exit code 1 while a command waits for it."""
    stand(database, dead())
    done = fleet("status")
    assert done.code == 0
    assert "adapters 1 lost\n" in done.out
    assert "note: adapter cloud is lost (last heartbeat " in done.out
    assert f"nothing waits for it {GOES_ON}" in done.out
    assert states(fleet) == ["lost"]
    order(database)
    done = fleet("status")
    assert done.code == 1
    assert "problem: adapter cloud is lost (last heartbeat " in done.out
    assert f"1 open group and 1 open command wait for it {GOES_ON}" in done.out


def test_status_of_an_adapter_past_its_lease(fleet: Command, database: Storage) -> None:
    """An adapter elsewhere is lost when its lease is over; somebody who stands again ends that."""
    elsewhere = replace(identify(), host="there", boot_id="another", pid=1)
    stand(database, elsewhere)
    assert "lost" not in fleet("status").out
    age(database, 31)
    assert "adapter cloud is lost (last heartbeat 3" in fleet("status").out
    stand(database)
    assert "lost" not in fleet("status").out


def test_status_of_a_paused_adapter(fleet: Command, database: Storage) -> None:
    """A paused adapter is told with its reason and how to resume it, until somebody does."""
    stand(database)
    database.adapters.pause("cloud", "10 orders in a row failed, the last: no quota")
    done = fleet("status")
    assert done.code == 0
    why = "10 orders in a row failed, the last: no quota"
    assert f"note: adapter cloud is paused: {why} (fleet adapter resume cloud)" in done.out
    assert fleet("adapter", "resume", "cloud").out == "adapter cloud starts workers again\n"
    assert "note: " not in fleet("status").out


def test_status_of_commands_that_nobody_takes(fleet: Command, database: Storage) -> None:
    """A command that its adapter has not taken for more than a minute makes the fleet unhealthy."""
    tenure = stand(database)
    order(database)
    assert fleet("status").code == 0
    execute(database, "UPDATE adapter_command SET created_at = '2026-01-01T00:00:00.000Z'")
    done = fleet("status")
    assert done.code == 1
    assert "problem: 1 open command waits for adapter cloud, for " in done.out
    [command] = database.control.open_commands()
    database.control.take_commands("cloud", None, identify(), lambda _: False, tenure)
    assert fleet("status").code == 0
    assert database.control.finish_command(command.command_id, identify(), reply={})
    assert database.control.open_commands() == ()


def test_what_a_place_offers_is_shown(fleet: Command, database: Storage) -> None:
    """`adapters` shows what a place offers, and what it offers on request; `groups` what a launch asks for."""
    limits = Limits(base_capabilities={"ssd": 1}, on_request={"gpu": 4, "mem": 0.5})
    database.adapters.stand(NewAdapter("cloud", "webhook", identify(), limits, 30.0))
    header, line = fleet("adapters").out.splitlines()
    assert "OFFERS  ON REQUEST" in header
    assert line[header.index("OFFERS") :].split()[:2] == ["ssd", "gpu=4,mem=0.5"]
    [row] = fleet("adapters", "--json").document
    assert (row["base_capabilities"], row["on_request"]) == ({"ssd": 1}, {"gpu": 4, "mem": 0.5})
    applied(database, plan(starts=(StartGroup("cloud", 1, {"gpu": 2}),)))
    header, line = fleet("groups").out.splitlines()
    assert line[header.index("CAPABILITIES") :].split()[0] == "gpu=2"
    assert fleet("groups", "--json").document[0]["capabilities"] == {"gpu": 2}
