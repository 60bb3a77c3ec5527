"""What the webhook adapter believes of what services say of themselves and of their groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.adapters import AdapterFailed, Ended, Limits, note_ended
from fleet.adapters.webhook import FRESH
from fleet.clock import ManualClock
from fleet.domain.group import BOOT_DEADLINE, GroupStatus
from fleet.storage.interfaces import Storage
from tests.adapters.clouds import (
    CLOUD,
    LISTING,
    MUTE,
    STARTED,
    TEMPLATE,
    an_adapter,
    an_entry,
    carry_out,
    listed,
)
from tests.adapters.ordering import requested
from tests.adapters.rogue import Answer, Rogue, replying
from tests.ageing import age
from tests.storage import plans
from tests.storage.samples import nobody


def test_a_service_that_does_not_list_is_told_again(memory: Storage) -> None:
    """Where groups are not listed, a start that a crash left is repeated with its token: the service knows it."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED]) as server:
        assert an_adapter(server).start_group(group, TEMPLATE)
        successor = an_adapter(server)
        assert successor.find_group(group) is None
        launch = successor.start_group(group, TEMPLATE)
        [standing] = successor.list_groups()
        assert successor.ended_groups() == ()
        assert not successor.info().lists
    assert (standing.launch_token, standing.launch) == (group.launch_token, launch)
    assert [each.headers["idempotency-key"] for each in server.requests] == [group.launch_token] * 2


def test_what_is_listed_is_found_by_its_token(memory: Storage) -> None:
    """Of what a service lists, only what carries the token is the group; strangers and nonsense are passed over."""
    group = requested(memory, CLOUD, 2)
    entries = [
        "nonsense",
        {},
        an_entry(group, launch_token=None),
        an_entry(group, worker_group_id="\n"),
        an_entry(group, launch_token="another", worker_group_id="i-1"),
        an_entry(group, adapter_id="another", worker_group_id="i-2"),
        an_entry(group, worker_group_id="i-3"),
    ]
    with Rogue([listed(*entries)], [LISTING]) as server:  # type: ignore[arg-type]
        adapter = an_adapter(server)
        found = adapter.find_group(group)
        names = [each.launch.reference for each in adapter.list_groups()]
    assert found is not None
    assert found.reference == "i-3"
    assert names == ["i-1", "i-3"]


def test_a_start_that_is_not_listed_yet_is_believed(memory: Storage) -> None:
    """A service that does not list yet what it has just started is believed until the boot deadline: the group keeps
    its place, is not started again, and fails only then (AD03)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED, listed()], [LISTING]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        assert note_ended(memory, adapter) == ()
        assert adapter.list_groups() == ()
    age(memory, BOOT_DEADLINE - 2)
    memory.control.expire(None, nobody)
    assert plans.group(memory, group.group_id).status is GroupStatus.LAUNCHING
    assert memory.control.open_commands() == ()
    age(memory, 2.001)
    memory.control.expire(None, nobody)
    assert plans.group(memory, group.group_id).status is GroupStatus.FAILED
    assert [each.document["action"] for each in server.requests].count("start_worker_group") == 1


@pytest.mark.parametrize("status", [None, "pending", "", 7])
def test_a_description_that_says_too_little_is_no_end(memory: Storage, status: object) -> None:
    """A group is taken for ended only where the service says so: one without a status, or of an unknown one, is waited
    for (AD04)."""
    group = requested(memory, CLOUD, 2)
    entry = an_entry(group, status=status)
    with Rogue([STARTED, listed(entry)], [LISTING]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        assert note_ended(memory, adapter) == ()
        [standing] = adapter.list_groups()
    assert standing.launch_token == group.launch_token
    assert plans.group(memory, group.group_id).status is GroupStatus.LAUNCHING


@pytest.mark.parametrize("answer", [replying(500, {}), MUTE, replying(200, {"worker_groups": "none"})])
def test_a_list_that_cannot_be_had_is_no_empty_one(memory: Storage, answer: Answer) -> None:
    """When a service does not say what stands there, that is an error and nothing is started (AD12)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([answer], [LISTING]) as server:
        adapter = an_adapter(server)
        for ask in (adapter.list_groups, adapter.ended_groups, lambda: adapter.find_group(group)):
            with pytest.raises(AdapterFailed):
                ask()
    assert "start_worker_group" not in [request.document["action"] for request in server.requests]


def test_an_end_without_a_code_is_told_with_its_words(memory: Storage) -> None:
    """A launch of which the service only knows that it ended fails its group with what was said, once."""
    group = requested(memory, CLOUD, 2)
    ended = an_entry(group, status="ended", error="no such\n\x1b[1mimage\0 ")
    with Rogue([STARTED, listed(ended)], [LISTING]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        [line] = note_ended(memory, adapter)
        assert adapter.ended_groups() == ()
        assert adapter.list_groups() == ()
    failed = plans.group(memory, group.group_id)
    assert (failed.status, failed.exit_code) == (GroupStatus.FAILED, None)
    assert line.endswith("ended before it made contact; it said: no such [1mimage")


@pytest.mark.parametrize(("code", "known"), [(137, 137), (-9, -9), ("1", None), (True, None), (2**40, None)])
def test_an_exit_code_is_a_number(memory: Storage, code: object, known: int | None) -> None:
    """What a service says instead of an exit code is none."""
    group = requested(memory, CLOUD, 2)
    with Rogue([listed(an_entry(group, status="ended", exit_code=code))], [LISTING]) as server:
        assert an_adapter(server).ended_groups() == (Ended(group.group_id, known),)


def test_a_size_is_nothing_to_a_service_that_does_not_name_it(memory: Storage) -> None:
    """A service that does not say that it can resize groups is not asked to."""
    group = requested(memory, CLOUD, 2)
    with Rogue([MUTE]) as server:
        assert not an_adapter(server).resize_group(replace(group, target_size=1, reference="i-0123"))
    assert server.requests == []


def test_a_size_is_told_to_a_service_that_wants_it(memory: Storage) -> None:
    """A service that knows how is told a group's new size."""
    group = requested(memory, CLOUD, 2)
    with Rogue([MUTE], [LISTING]) as server:
        assert an_adapter(server).resize_group(replace(group, target_size=1, reference="i-0123"))
    order = server.requests[0].document
    assert (order["action"], order["worker_group_id"], order["workers"]) == ("resize_worker_group", "i-0123", 1)


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        ({}, Limits()),
        ({"max_worker_groups": 10, "workers_per_group": 0}, Limits(10, 0)),
        ({"max_worker_groups": -1, "workers_per_group": 2**64}, Limits()),
        ({"max_worker_groups": True, "workers_per_group": 1.5, "actions": "all"}, Limits()),
        ({"base_capabilities": {"gpu": 1, "mem": 0.5}}, Limits(None, None, {"gpu": 1.0, "mem": 0.5})),
        ({"capabilities_on_request": {"gpu": 4}}, Limits(None, None, None, {"gpu": 4.0})),
        ({"capabilities_on_request": ["gpu"]}, Limits()),
        ({"base_capabilities": {"gpu": "one", "cpu": -1, "x": float("nan"), "y": 10**999}}, Limits(None, None, {})),
    ],
)
def test_limits_are_taken_as_far_as_they_make_sense(said: object, limits: Limits) -> None:
    """What a service says of its limits counts where it is a number that can be one."""
    with Rogue([MUTE], [replying(200, said)]) as server:
        info = an_adapter(server).info()
    assert (info.limits, info.resizes, info.lists, info.problem) == (limits, False, False, None)


def test_the_command_line_goes_before_the_service() -> None:
    """A limit that the adapter was given counts instead of the service's."""
    with Rogue([MUTE], [replying(200, {"max_worker_groups": 10, "workers_per_group": 3})]) as server:
        info = an_adapter(server, limits=Limits(max_worker_groups=1)).info()
    assert info.limits == Limits(1, 3)


def test_a_service_is_not_asked_all_the_time() -> None:
    """What a service can do is asked every half minute; while it does not answer, what it said before counts."""
    clock = ManualClock()
    said = [LISTING, replying(500, {"error": "asleep"}), replying(200, {"max_worker_groups": 5})]
    with Rogue([MUTE], said) as server:
        adapter = an_adapter(server, clock)
        infos = [adapter.info()]
        for seconds in (FRESH - 0.001, 0.001, FRESH - 0.001, 0.001):
            clock.advance(seconds)
            infos.append(adapter.info())
    assert [info.limits.max_worker_groups for info in infos] == [4, 4, 4, 4, 5]
    assert [bool(info.problem) for info in infos] == [False, False, True, True, False]
    assert "asleep" in str(infos[2].problem)
    assert len(server.inquiries) == 3
