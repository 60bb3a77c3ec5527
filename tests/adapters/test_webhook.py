"""The webhook adapter's orders to services that answer as they like, with a clock that the test moves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.adapters import AdapterFailed, LaunchFailed
from fleet.adapters.reconciling import GRACE, Sizes, end_leftovers
from fleet.adapters.service import ATTEMPTS, BETWEEN
from fleet.adapters.webhook import LONGEST_TIMEOUT
from fleet.clock import ManualClock
from fleet.domain.group import BOOT_DEADLINE, CommandKind, CommandStatus, GroupRecord, GroupStatus
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.plan import ResizeGroup
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage
from tests.adapters.clouds import (
    CLOUD,
    LISTING,
    MUTE,
    PASSWORD,
    STARTED,
    TEMPLATE,
    TOKEN,
    an_adapter,
    an_entry,
    carry_out,
    listed,
)
from tests.adapters.ordering import requested, withdraw
from tests.adapters.rogue import Answer, Rogue, replying, resetting
from tests.ageing import age
from tests.storage import plans
from tests.storage.samples import process


def test_a_start_says_what_the_service_must_pass_on(store: Storage) -> None:
    """A start carries size, arguments, variables and token; neither the database's address nor a path of this host."""
    group = requested(store, CLOUD, 2)
    with Rogue([STARTED]) as server:
        command = carry_out(store, an_adapter(server, **{"token-env": "CLOUD_TOKEN"}))
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
    launched = plans.group(store, group.group_id)
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


def test_a_group_that_stands_is_not_started_again(memory: Storage) -> None:
    """An adapter that started a group gives no second order for it, to services that know no tokens either (AD08)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED, replying(200, {"worker_group_id": "another"})]) as server:
        adapter = an_adapter(server)
        assert adapter.start_group(group, TEMPLATE) == adapter.start_group(group, TEMPLATE)
    assert len(server.requests) == 1


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
        pytest.param(replying(200, {"worker_group_id": "a\0b\ud800"}), 502, id="nothing for a row"),
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


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, CommandStatus.SUCCEEDED),
        (404, CommandStatus.SUCCEEDED),
        (410, CommandStatus.SUCCEEDED),
        (400, CommandStatus.FAILED),
        (429, CommandStatus.TAKEN),
        (500, CommandStatus.TAKEN),
    ],
)
def test_gone_is_not_the_same_as_unknown(memory: Storage, status: int, outcome: CommandStatus) -> None:
    """A withdrawn group that the service no longer has is stopped; where it does not say, the order stays open, and
    fails where it says that it will not (AD12)."""
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
    is_done = outcome is CommandStatus.SUCCEEDED
    assert row.status is (GroupStatus.STOPPED if is_done else GroupStatus.STOPPING)
    assert (command.status, command.error_code) == (outcome, None if is_done else status)


def test_what_the_service_could_not_end_is_ended_later(memory: Storage) -> None:
    """The end of a group that the service was in no state to carry out is asked for again until it does."""
    group = requested(memory, CLOUD, 2)
    with Rogue([STARTED, *[replying(503, {"error": "later"})] * ATTEMPTS, MUTE]) as server:
        adapter = an_adapter(server)
        carry_out(memory, adapter)
        withdraw(memory, group)
        assert carry_out(memory, adapter).status is CommandStatus.TAKEN
        assert carry_out(memory, adapter).status is CommandStatus.SUCCEEDED
    assert plans.group(memory, group.group_id).status is GroupStatus.STOPPED


def test_a_start_without_a_reply_is_shut_down(memory: Storage) -> None:
    """Whether a start whose reply never came was carried out is not known: the service is told to end it (AD01)."""
    group = requested(memory, CLOUD, 2)
    with Rogue([*[resetting] * ATTEMPTS, MUTE]) as server:
        adapter = an_adapter(server)
        assert carry_out(memory, adapter).status is CommandStatus.FAILED
        assert plans.group(memory, group.group_id).status is GroupStatus.FAILED
        assert carry_out(memory, adapter).status is CommandStatus.SUCCEEDED
    assert server.requests[-1].document["action"] == "shutdown_worker_group"
    assert server.requests[-1].document["launch_token"] == group.launch_token


def test_after_silence_nothing_more_is_tried(memory: Storage) -> None:
    """When the service does not answer the first of several commands, the others wait for the next look."""
    first, second = requested(memory, CLOUD, 1), requested(memory, CLOUD, 1)
    with Rogue([MUTE]) as server:
        adapter = an_adapter(server)
    assert carry_out(memory, adapter).arguments["group_id"] == first.group_id
    assert plans.group(memory, second.group_id).status is GroupStatus.REQUESTED
    assert carry_out(memory, adapter).arguments["group_id"] == second.group_id


def test_leftovers_at_the_service_are_shut_down(memory: Storage) -> None:
    """What the service lists as running, and the rows say has ended a minute ago, is ordered to end, once; what has
    just ended, what runs, and what no row knows is left alone."""
    group, fresh, living = (requested(memory, CLOUD, 1) for _ in range(3))
    memory.control.fail_group(group.group_id, error="given up")
    age(memory, GRACE + 1)
    memory.control.fail_group(fresh.group_id, error="given up")
    entries = [
        an_entry(group, worker_group_id="i-1"),
        an_entry(fresh, worker_group_id="i-2"),
        an_entry(living, worker_group_id="i-3"),
        an_entry(group, worker_group_id="i-4", group_id="unknown"),
        an_entry(group, worker_group_id="i-5", launch_token="another"),
    ]
    with Rogue([listed(*entries)], [LISTING]) as server:
        adapter = an_adapter(server)
        [line] = end_leftovers(memory, adapter)
        assert end_leftovers(memory, adapter) == ()
    assert line.startswith(f"group {group.group_id} has ended and still stands at its place")
    orders = [each for each in memory.control.commands() if each.kind is CommandKind.SHUTDOWN_WORKER_GROUP]
    assert [each.arguments["group_id"] for each in orders] == [group.group_id]
    assert plans.group(memory, group.group_id).reference == "i-1"


def running(store: Storage, size: int) -> GroupRecord:
    """Let a pass order a group, and the group make contact."""
    group = requested(store, CLOUD, size)
    assert store.control.launching(group.group_id, group.launch_token, ProcessIdentity(), None, "i-9")
    assert store.control.contact(group.group_id, group.launch_token, process(5))
    return plans.group(store, group.group_id)


def test_the_service_is_told_the_sizes_that_change(memory: Storage) -> None:
    """Where a service can resize groups it is told of a size that was lowered, once; after it was away, or its adapter
    was another process, of the sizes of all that run."""
    group = running(memory, 3)
    age(memory, 5)
    lower = plans.plan(resizes=(ResizeGroup(group.group_id, 3, 2),))
    with Rogue([replying(503), replying(503), replying(503), MUTE], [LISTING]) as server:
        successor = Sizes(memory, an_adapter(server))
        with pytest.raises(AdapterFailed):
            successor.tell()
        for _ in range(2):
            successor.tell()
        plans.applied(memory, lower)
        for _ in range(2):
            successor.tell()
    told = [(each.document["action"], each.document["workers"]) for each in server.requests]
    assert told == [("resize_worker_group", 3)] * (ATTEMPTS + 1) + [("resize_worker_group", 2)]
    with Rogue([MUTE], [replying(200, {})]) as server:
        Sizes(memory, an_adapter(server)).tell()
    assert server.requests == []


def test_a_service_is_not_told_the_size_that_it_has_just_started(memory: Storage) -> None:
    """A group that was started after the adapter began has the size that it was started with."""
    with Rogue([MUTE], [LISTING]) as server:
        sizes = Sizes(memory, an_adapter(server))
        group = running(memory, 3)
        sizes.tell()
        assert server.requests == []
        plans.applied(memory, plans.plan(resizes=(ResizeGroup(group.group_id, 3, 2),)))
        sizes.tell()
    assert [each.document["workers"] for each in server.requests] == [2]


@pytest.mark.parametrize(("own", "told"), [((), "--capability=gpu=2"), (("gpu=1", "ram=4"), "--capability=gpu=1")])
def test_workers_offer_what_their_place_does(memory: Storage, own: tuple[str, ...], told: str) -> None:
    """What the service says that its workers offer is among their arguments; the template's amounts prevail."""
    group = requested(memory, CLOUD, 1)
    abilities = replying(200, {"base_capabilities": {"gpu": 2}})
    template = replace(TEMPLATE, options={**TEMPLATE.options, **({"capability": list(own)} if own else {})})
    with Rogue([STARTED], [abilities]) as server:
        an_adapter(server).start_group(group, template)
    arguments = server.requests[0].document["arguments"]
    assert [each for each in arguments if each.startswith("--capability=gpu")] == [told]


def test_a_start_names_what_its_workers_must_offer(memory: Storage) -> None:
    """What a launch asks for stands in the order's body and among its arguments, and prevails there."""
    group = requested(memory, CLOUD, 1, {"gpu": 2})
    abilities = replying(200, {"base_capabilities": {"gpu": 1, "disk": 3}})
    with Rogue([STARTED], [abilities]) as server:
        an_adapter(server).start_group(group, replace(TEMPLATE, options={"capability": ["gpu=1,ram=4"]}))
    document = server.requests[0].document
    assert document["capabilities"] == {"gpu": 2}
    told = [each for each in document["arguments"] if each.startswith("--capability")]
    assert sorted(told) == ["--capability=disk=3", "--capability=gpu=2", "--capability=ram=4"]


def test_a_group_is_stopped_by_the_name_on_its_row(memory: Storage) -> None:
    """After a crash the row says what the service calls a group; without that, the fleet's own id is tried."""
    group = requested(memory, CLOUD, 2)
    with Rogue([MUTE]) as server:
        assert an_adapter(server).stop_group(replace(group, reference="i-9"))
        assert an_adapter(server).stop_group(group)
    named = [each.document["worker_group_id"] for each in server.requests if "worker_group_id" in each.document]
    assert named == ["i-9", group.group_id]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token-env": "NO_SUCH"}, "variable NO_SUCH is not set"),
        ({"timeout": "soon"}, "duration 'soon'"),
        ({"timeout": "0"}, "100ms to 15s"),
        ({"timeout": "16s"}, "100ms to 15s"),
        ({"url": "example.org"}, "http://"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], words: str) -> None:
    """An adapter with options that cannot be is not made; the line says which."""
    with Rogue([MUTE]) as server, pytest.raises(UsageError, match=words):
        an_adapter(server, **options)


def test_all_attempts_end_before_the_boot_deadline() -> None:
    """However long one exchange may take, an order is given up before its group has failed for want of contact."""
    waits = sum(BETWEEN.bound(attempt) for attempt in range(1, ATTEMPTS))
    assert ATTEMPTS * LONGEST_TIMEOUT + waits < BOOT_DEADLINE
