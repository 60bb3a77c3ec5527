"""What every kind of adapter does, with real workers at a real place."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from fleet import process
from fleet.adapters import Ended, LaunchFailed
from fleet.adapters.base import NO_CAPACITY, REFUSED
from fleet.config import DATABASE_VARIABLE, locate
from fleet.domain.group import CommandStatus, GroupRecord, GroupStatus
from tests.adapters.ordering import withdraw
from tests.adapters.places import ADAPTER_ID, MOST_GROUPS, Place, template
from tests.processes.procfs import parent
from tests.storage.samples import process as another_process

HANGING = template(tasks=["tests.adapters.hanging"])
BROKEN = template(tasks=["tests.no_such_module"])


def test_it_says_what_it_is(place: Place) -> None:
    """An adapter says under which id it works, of which kind it is, and what its place can take."""
    info = place.adapter.info()
    assert (info.adapter_id, info.kind, info.host) == (ADAPTER_ID, place.kind, process.host_name())
    assert (info.limits.max_worker_groups, info.limits.workers_per_group) == (MOST_GROUPS, None)
    assert info.lists
    assert info.problem is None


def test_a_started_group_makes_contact(place: Place) -> None:
    """A group that was ordered runs, with as many workers as were ordered, under its own id and its adapter's."""
    group = place.requested(2)
    [outcome] = place.carry_out(template())
    assert (outcome.group_id, outcome.workers, outcome.error) == (group.group_id, 2, None)
    place.wait_status(group, "running")
    place.site.wait_workers(2)
    members = place.site.ledger.rows("SELECT DISTINCT group_id, adapter_id FROM worker_registry")
    assert members == [(group.group_id, ADAPTER_ID)]
    assert place.storage.control.commands()[0].status is CommandStatus.SUCCEEDED
    [standing] = place.anew().list_groups()
    assert standing.launch.process in (None, place.row(group.group_id).process)


def test_workers_offer_what_their_launch_asks_for(place: Place) -> None:
    """What a launch asks for is offered by each of its workers, whatever else the template says; its row tells it."""
    group = place.requested(2, gpu=1, mem=16)
    assert dict(place.row(group.group_id).capabilities) == {"gpu": 1, "mem": 16}
    place.carry_out(template(capability=["ssd", "mem=4"]))
    place.site.wait_workers(2)
    offered = place.site.ledger.rows("SELECT capabilities_json FROM worker_registry")
    assert [json.loads(text) for (text,) in offered] == [{"gpu": 1, "mem": 16, "ssd": 1}] * 2
    assert place.row(group.group_id).error is None


def test_two_starts_with_one_token_are_one_group(place: Place) -> None:
    """A start that is repeated returns what stands, and starts nothing (AD08)."""
    group = place.requested()
    first = place.adapter.start_group(group, template())
    assert place.adapter.start_group(group, template()) == first
    place.wait_status(group, "running")
    place.site.wait_workers(1)
    assert len(place.adapter.list_groups()) == 1
    assert len(supervisors(place, group)) == 1


def test_two_adapters_with_one_token_bring_up_one_group(place: Place) -> None:
    """Of two adapters that start one group, neither knowing of the other, one group comes of it and nothing is left
    (AD01)."""
    group = place.requested(2)
    for _ in range(2):
        place.anew().start_group(group, template())
    place.wait_status(group, "running")
    place.site.wait_workers(2)
    place.wait(lambda: len(supervisors(place, group)) == 1, "the second one has gone")
    assert len(place.site.workers()) == 2


def supervisors(place: Place, group: GroupRecord) -> list[int]:
    """Return the processes of a group that are no children of another one of it."""
    pids = place.processes(group)
    return [pid for pid in pids if parent(pid) not in pids]


def test_a_withdrawn_group_is_ended_before_contact(place: Place) -> None:
    """A launch that is withdrawn while it comes up is ended, and its row says stopped."""
    group = place.requested()
    place.carry_out(HANGING)
    place.wait(lambda: place.processes(group), "the launch is there")
    withdraw(place.storage, group)
    place.carry_out(HANGING)
    place.wait(lambda: not place.processes(group), "the launch has ended")
    assert place.note_ended() == ()
    assert place.row(group.group_id).status is GroupStatus.STOPPED
    assert place.adapter.list_groups() == ()


def test_what_a_crash_left_is_found(place: Place) -> None:
    """An adapter that remembers nothing finds a launch by its token, and no other (SC19)."""
    group = place.requested()
    launch = place.adapter.start_group(group, HANGING)
    place.wait(lambda: place.processes(group), "the launch is there")
    successor = place.anew()
    found = successor.find_group(group)
    assert found is not None
    assert (found.process, found.reference) == (launch.process, launch.reference)
    assert successor.find_group(replace(group, launch_token="another")) is None
    [standing] = successor.list_groups()
    assert (standing.group_id, standing.launch_token) == (group.group_id, group.launch_token)
    assert (standing.launch.process, standing.launch.reference) == (launch.process, launch.reference)


def test_a_command_of_a_crashed_adapter_starts_nothing_again(place: Place) -> None:
    """A command taken by one who died after acting is answered for what stands: exactly one group (AD01)."""
    group = place.requested()
    dead = another_process(7)
    place.storage.control.take_commands(ADAPTER_ID, None, dead, lambda holder: False)
    launch = place.adapter.start_group(group, template())
    place.wait(lambda: place.processes(group), "the launch is there")
    [outcome] = place.carry_out(template(), place.anew(), lambda holder: holder == dead)
    assert outcome.error is None
    reply = place.storage.control.commands()[0].reply or {}
    assert reply.get("worker_group_id") == launch.reference
    assert reply.get("pid") == (launch.process.pid if launch.process else None)
    place.wait_status(group, "running")
    place.site.wait_workers(1)
    assert len(place.adapter.list_groups()) == 1
    assert place.note_ended() == ()


def test_a_failure_to_start_keeps_exit_code_and_last_words(place: Place) -> None:
    """A launch that ends before contact fails its group, with its exit code and what it said (LF07)."""
    group = place.requested()
    place.carry_out(BROKEN)
    lines: list[str] = []
    place.wait(lambda: lines.extend(place.note_ended()) or lines, "the end is noted")
    failed = place.row(group.group_id)
    assert (failed.status, failed.exit_code) == (GroupStatus.FAILED, 2)
    assert "no_such_module" in str(failed.error)
    assert lines == [f"group {group.group_id} failed: {failed.error}"]
    assert place.adapter.list_groups() == ()


def test_an_end_is_told_once(place: Place) -> None:
    """Of a launch that ended its adapter tells once."""
    group = place.requested()
    place.adapter.start_group(group, BROKEN)
    told: list[Ended] = []
    place.wait(lambda: told.extend(place.adapter.ended_groups()) or told, "the end is told")
    assert [(each.group_id, each.exit_code) for each in told] == [(group.group_id, 2)]
    assert place.adapter.ended_groups() == ()


def test_a_full_place_refuses_with_its_own_number(place: Place) -> None:
    """Where there is no capacity a start fails with 429 and starts nothing; a group that ended makes room (AD02)."""
    groups = [place.requested() for _ in range(MOST_GROUPS + 1)]
    for group in groups[:-1]:
        place.adapter.start_group(group, HANGING)
    place.wait(lambda: len(place.adapter.list_groups()) == MOST_GROUPS, "the place is full")
    with pytest.raises(LaunchFailed) as refused:
        place.adapter.start_group(groups[-1], HANGING)
    assert refused.value.code == NO_CAPACITY
    assert place.processes(groups[-1]) == []
    assert place.adapter.stop_group(groups[0])
    place.wait(lambda: len(place.adapter.list_groups()) < MOST_GROUPS, "there is room")
    place.adapter.start_group(groups[-1], HANGING)


def test_a_running_group_is_drained_by_its_stop(place: Place) -> None:
    """A group in contact that is stopped at its place ends its workers in order, and nothing of it is left."""
    group = place.requested(2)
    place.adapter.start_group(group, template())
    place.wait_status(group, "running")
    place.site.wait_workers(2)
    assert place.anew().stop_group(group)
    place.wait_status(group, "stopped")
    place.wait(lambda: not place.processes(group), "all processes of the group have ended")
    assert place.site.workers("lost") == {}
    place.wait(lambda: place.adapter.list_groups() == (), "its place has noticed")


def test_there_is_nothing_to_stop(place: Place) -> None:
    """Stopping what does not stand says so, before a start and after an end (AD12)."""
    group = place.requested()
    assert not place.adapter.stop_group(group)
    place.adapter.start_group(group, HANGING)
    place.wait(lambda: place.adapter.list_groups(), "the launch is there")
    assert place.adapter.stop_group(group)
    place.wait(lambda: not place.processes(group), "the launch has ended")
    place.wait(lambda: place.adapter.ended_groups(), "the end is told")
    assert not place.adapter.stop_group(group)


def test_a_size_is_told_to_places_that_want_it(place: Place) -> None:
    """A group is resized where the kind can and the group stands, and nowhere else."""
    group = place.requested()
    place.adapter.start_group(group, HANGING)
    place.wait(lambda: place.adapter.list_groups(), "the launch is there")
    assert place.adapter.resize_group(replace(group, target_size=2)) is place.adapter.info().resizes
    assert not place.adapter.resize_group(replace(group, group_id="g", launch_token="none", target_size=2))


def test_a_template_that_makes_no_sense_is_refused(place: Place) -> None:
    """Options from a row that no worker has are a failed launch with a reason (RT06)."""
    group = place.requested()
    with pytest.raises(LaunchFailed, match="--evil is unknown") as refused:
        place.adapter.start_group(group, template(evil="1"))
    assert refused.value.code == REFUSED
    assert place.adapter.list_groups() == ()


def test_strangers_are_left_alone(place: Place) -> None:
    """What another adapter started, of the same database, is neither listed nor told of (SC19)."""
    group = place.requested()
    foreign = place.site.worker(
        env={
            DATABASE_VARIABLE: locate(str(place.site.database)).url,
            "FLEET_ADAPTER_ID": "another",
            "FLEET_GROUP_ID": group.group_id,
            "FLEET_LAUNCH_TOKEN": group.launch_token,
        }
    )
    place.wait_status(group, "running")
    assert place.adapter.list_groups() == ()
    foreign.signal(signal.SIGTERM)
    assert foreign.wait() == 0
    assert place.adapter.ended_groups() == ()
