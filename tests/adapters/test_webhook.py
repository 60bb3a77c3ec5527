"""The webhook adapter and services that answer as they like, with a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fleet.adapters import Adapter, AdapterFailed, Ended, LaunchFailed, Limits, note_ended, run_commands
from fleet.adapters.kinds import Assignment, load_kind
from fleet.adapters.service import ATTEMPTS, BETWEEN
from fleet.adapters.webhook import FRESH
from fleet.cli.options import worker_arguments
from fleet.clock import ManualClock
from fleet.config import Location
from fleet.domain.group import CommandRecord, CommandStatus, GroupRecord, GroupStatus, Template
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from tests.adapters.ordering import requested, withdraw
from tests.adapters.rogue import Answer, Rogue, replying, resetting
from tests.storage import plans

PASSWORD = "p4ssword-of-the-database"
TOKEN = "t0ken-of-the-service"
CLOUD = "cloud"
LOCATION = Location(f"postgresql+psycopg://u:{PASSWORD}@h/d", None, True, "postgresql://u:***@h/d")
TEMPLATE = Template("/usr/bin/python3", "/srv/app", {"tasks": ["jobs"], "lease": "20s"})
MUTE = replying(200, {})
LISTING = replying(200, {"max_worker_groups": 4, "actions": ["list_worker_groups", "resize_worker_group"]})
STARTED = replying(200, {"worker_group_id": "i-0123"})


def an_adapter(
    server: Rogue, clock: ManualClock | None = None, limits: Limits | None = None, **options: str
) -> Adapter:
    """Return an adapter that speaks to this server."""
    assignment = Assignment(
        CLOUD, LOCATION, worker_arguments, {"CLOUD_TOKEN": TOKEN}, limits or Limits(), clock or ManualClock()
    )
    return load_kind("webhook").make(assignment, {"url": server.url, "timeout": "10s", **options})


def carry_out(store: Storage, adapter: Adapter) -> CommandRecord:
    """Carry out what was ordered; return the command as it is then."""
    [outcome] = run_commands(store, adapter, None, lambda pool: TEMPLATE, lambda process: False)
    [command] = [each for each in store.control.commands() if each.command_id == outcome.command_id]
    return command


def listed(*entries: Mapping[str, object]) -> Answer:
    """Reply with a list of groups."""
    return replying(200, {"worker_groups": entries})


def an_entry(group: GroupRecord, **given: object) -> dict[str, object]:
    """Return a group as a service lists it."""
    usual = {"worker_group_id": "i-0123", "group_id": group.group_id, "launch_token": group.launch_token}
    return {**usual, "adapter_id": CLOUD, "status": "running", **given}


def test_a_start_says_what_the_service_must_pass_on(memory: Storage) -> None:
    """A start carries size, arguments, variables and token; neither the database's address nor a path of this host."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED]) as server:
        command = carry_out(memory, an_adapter(server, **{"token-env": "CLOUD_TOKEN"}))
    [request] = server.requests
    assert request.headers["idempotency-key"] == group.launch_token
    assert request.document == {
        "action": "start_worker_group",
        "adapter_id": CLOUD,
        "group_id": group.group_id,
        "launch_token": group.launch_token,
        "pool": "default",
        "workers": 2,
        "capabilities": {},
        "arguments": ["--tasks=jobs", "--lease=20s", "--pool=default", "--processes=2"],
        "environment": {
            "FLEET_GROUP_ID": group.group_id,
            "FLEET_LAUNCH_TOKEN": group.launch_token,
            "FLEET_ADAPTER_ID": CLOUD,
        },
    }
    assert (command.status, command.reply) == (
        CommandStatus.SUCCEEDED,
        {"group_id": group.group_id, "workers": 2, "worker_group_id": "i-0123"},
    )
    launched = plans.group(memory, group.group_id)
    assert (launched.status, launched.process.pid) == (GroupStatus.LAUNCHING, None)


def test_secrets_stay_out_of_requests_and_rows(memory: Storage) -> None:
    """Neither the service's token nor the database's password is in a request's body, a row or a message (SE03)."""
    requested(memory, CLOUD, 2)
    wrong = [replying(401, {"error": f"Bearer {TOKEN} is wrong"})]
    with Rogue(wrong, wrong) as server:
        adapter = an_adapter(server, **{"token-env": "CLOUD_TOKEN"})
        command = carry_out(memory, adapter)
        problem = adapter.info().problem
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    told = json.dumps([request.document for request in server.requests]) + str(command) + str(problem)
    told += str(memory.control.groups())
    assert "*** is wrong" in told
    assert TOKEN not in told
    assert PASSWORD not in told


@pytest.mark.parametrize("first", [replying(500, {}), replying(503, b"busy"), resetting], ids=["500", "503", "reset"])
def test_a_start_is_tried_again_with_its_token(memory: Storage, first: Answer) -> None:
    """What may pass is tried again after a wait, with the same token, so that the service can know it (AD08)."""
    group = requested(memory, CLOUD, 2)
    clock = ManualClock()
    before = clock.boottime()
    with Rogue([first, STARTED]) as server:
        launch = an_adapter(server, clock).start_group(group, TEMPLATE)
    assert launch.reference == "i-0123"
    assert [request.headers["idempotency-key"] for request in server.requests] == [group.launch_token] * 2
    assert server.requests[0].document == server.requests[1].document
    assert 0 < clock.boottime() - before <= BETWEEN.bound(1)


def test_a_start_is_given_up_in_time(memory: Storage) -> None:
    """A service that stays broken is asked a few times, with bounded waits; then the launch failed."""
    group = requested(memory, CLOUD, 2)
    clock = ManualClock()
    before = clock.boottime()
    with Rogue([replying(500, {"error": "no disk"})]) as server, pytest.raises(LaunchFailed, match="no disk") as failed:
        an_adapter(server, clock).start_group(group, TEMPLATE)
    assert failed.value.code == 500
    assert len(server.requests) == ATTEMPTS
    assert clock.boottime() - before <= sum(BETWEEN.bound(attempt) for attempt in range(1, ATTEMPTS))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(replying(429, {"error": "Capacity exceeded"}), 429, id="full"),
        pytest.param(replying(400, {"error": "unknown pool"}), 400, id="refused"),
        pytest.param(replying(307, b"", Location="http://elsewhere/"), 307, id="redirected"),
        pytest.param(replying(200, b"<html>"), 502, id="no JSON"),
        pytest.param(replying(200, {"worker_group_id": ""}), 502, id="no name"),
        pytest.param(replying(200, {"worker_group_id": True}), 502, id="no text"),
        pytest.param(replying(200, {"error": "later"}), 502, id="no group"),
        pytest.param(replying(200, {"worker_group_id": "x" * 501}), 502, id="a novel"),
    ],
)
def test_a_refused_start_is_not_repeated(memory: Storage, answer: Answer, code: int) -> None:
    """What will not pass fails the command and the group at once, with its number (AD02)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([answer]) as server:
        command = carry_out(memory, an_adapter(server))
    assert (command.status, command.error_code) == (CommandStatus.FAILED, code)
    assert len(server.requests) == 1
    failed = plans.group(memory, group.group_id)
    assert (failed.status, failed.error) == (GroupStatus.FAILED, command.error_message)


def test_nobody_listens(memory: Storage) -> None:
    """A service that is not there fails the command with 503."""
    requested(memory, CLOUD, 2)
    with Rogue([MUTE]) as server:
        adapter = an_adapter(server)
    command = carry_out(memory, adapter)
    assert (command.status, command.error_code) == (CommandStatus.FAILED, 503)


@pytest.mark.parametrize(("status", "succeeded"), [(200, True), (404, True), (410, True), (400, False), (500, False)])
def test_gone_is_not_the_same_as_unknown(memory: Storage, status: int, succeeded: bool) -> None:
    """A withdrawn group that the service no longer has is stopped; where it does not say, the command fails (AD12)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED, replying(status, {"error": "so be it"})]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        withdraw(memory, group)
        command = carry_out(memory, adapter)
    assert server.requests[1].document == {
        "action": "shutdown_worker_group",
        "adapter_id": CLOUD,
        "group_id": group.group_id,
        "launch_token": group.launch_token,
        "worker_group_id": "i-0123",
    }
    row = plans.group(memory, group.group_id)
    assert row.status is (GroupStatus.STOPPED if succeeded else GroupStatus.STOPPING)
    assert command.error_code == (None if succeeded else status)


def test_a_group_is_stopped_by_the_name_on_its_row(memory: Storage) -> None:
    """After a crash the row says what the service calls a group; without that, the fleet's own id is tried."""
    group = requested(memory, CLOUD, 2)
    with Rogue([MUTE]) as server:
        assert an_adapter(server).stop_group(replace(group, reference="i-9"))
        assert an_adapter(server).stop_group(group)
    named = [each.document["worker_group_id"] for each in server.requests if "worker_group_id" in each.document]
    assert named == ["i-9", group.group_id]


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
    ended = an_entry(group, status="ended", error="no such\nimage ")
    with Rogue([STARTED, listed(ended)], [LISTING]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        [line] = note_ended(memory, adapter)
        assert adapter.ended_groups() == ()
        assert adapter.list_groups() == ()
    failed = plans.group(memory, group.group_id)
    assert (failed.status, failed.exit_code) == (GroupStatus.FAILED, None)
    assert line.endswith("ended before it made contact; it said: no such image")


@pytest.mark.parametrize(("code", "known"), [(137, 137), (-9, -9), ("1", None), (True, None), (2**40, None)])
def test_an_exit_code_is_a_number(memory: Storage, code: object, known: int | None) -> None:
    """What a service says instead of an exit code is none."""
    group = requested(memory, CLOUD, 2)
    with Rogue([listed(an_entry(group, status="ended", exit_code=code))], [LISTING]) as server:
        assert an_adapter(server).ended_groups() == (Ended(group.group_id, known),)


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token-env": "NO_SUCH"}, "variable NO_SUCH is not set"),
        ({"timeout": "soon"}, "duration 'soon'"),
        ({"timeout": "0"}, "100ms to 60s"),
        ({"timeout": "2m"}, "100ms to 60s"),
        ({"url": "example.org"}, "http://"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], words: str) -> None:
    """An adapter with options that cannot be is not made; the line says which."""
    with Rogue([MUTE]) as server, pytest.raises(UsageError, match=words):
        an_adapter(server, **options)
