"""What the status says of adapters and of commands to them: from assigned values, no database, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.adapters import AdapterRecord, AdapterStatus, Limits
from fleet.domain.group import CommandKind, CommandRecord, CommandStatus, GroupStatus
from fleet.domain.liveness import ProcessIdentity
from fleet.monitoring.adapters import AdapterState, state_of
from fleet.monitoring.control import UNTAKEN
from fleet.monitoring.sight import Sight
from fleet.monitoring.status import status_of
from tests.monitoring.test_status import NOW, fixed, group, worker

LEASE = 30.0
PAUSED = {"status": AdapterStatus.PAUSED, "reason": "10 orders in a row failed, the last: no quota"}


def adapter(beat_age: float = 1.0, **changes: object) -> AdapterRecord:
    """Return the adapter `cloud`, whose process last beat so many seconds ago."""
    beat = NOW - timedelta(seconds=beat_age)
    record = AdapterRecord(
        adapter_id="cloud",
        kind="webhook",
        process=ProcessIdentity(host="there", pid=1, start_ticks=1),
        epoch=1,
        limits=Limits(),
        resizes=True,
        priority=0,
        last_heartbeat=beat,
        lease_seconds=LEASE,
        lease_expires_at=beat + timedelta(seconds=LEASE),
        status=AdapterStatus.ACTIVE,
        reason=None,
        backoff_until=None,
        consecutive_failures=0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def command(age: float = 0.0, **changes: object) -> CommandRecord:
    """Return a pending shutdown of the group `g` that was ordered so many seconds ago."""
    record = CommandRecord(
        command_id=1,
        adapter_id="cloud",
        pool="default",
        kind=CommandKind.SHUTDOWN_WORKER_GROUP,
        arguments={"group_id": "g"},
        status=CommandStatus.PENDING,
        taken_by=None,
        scheduler_epoch=1,
        created_at=NOW - timedelta(seconds=age),
        expires_at=NOW + timedelta(days=1),
        taken_at=None,
        finished_at=None,
        reply=None,
        error_code=None,
        error_message=None,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


NOBODY = ProcessIdentity(host="there")
AWAY = adapter(lease_expires_at=None, process=NOBODY)
RESTING = adapter(process=ProcessIdentity(host="there", pid=1))
LOST = adapter(LEASE + 0.001)
RUNNING = replace(group(GroupStatus.RUNNING, contacted=True), adapter_id="cloud")


@pytest.mark.parametrize(
    ("record", "dead", "state"),
    [
        (adapter(), False, AdapterState.READY),
        (adapter(backoff_until=NOW + timedelta(milliseconds=1)), False, AdapterState.BACKING_OFF),
        (adapter(backoff_until=NOW), False, AdapterState.READY),
        (adapter(LEASE), False, AdapterState.READY),
        (adapter(LEASE + 0.001), False, AdapterState.LOST),
        (adapter(), True, AdapterState.LOST),
        (AWAY, False, AdapterState.AWAY),
        (AWAY, True, AdapterState.AWAY),
        (adapter(lease_expires_at=None), False, AdapterState.LOST),
        (RESTING, True, AdapterState.RESTING),
        (replace(RESTING, lease_expires_at=NOW - timedelta(seconds=1)), False, AdapterState.LOST),
        (adapter(99, **PAUSED), True, AdapterState.PAUSED),
    ],
)
def test_state(record: AdapterRecord, dead: bool, state: AdapterState) -> None:
    """An adapter is ready while a process stands for it, just before, at and just after each threshold."""
    assert state_of(record, NOW, dead) is state


def test_adapters_are_counted_by_state() -> None:
    """Adapters that a process has ever stood for are counted by state; those that a scaler acts for are not."""
    adapters = (adapter(), replace(LOST, adapter_id="b"), adapter(adapter_id="c", epoch=0, lease_expires_at=None))
    found = status_of(Sight(NOW, adapters=adapters))
    assert found.adapters == {"ready": 1, "resting": 0, "backing off": 0, "paused": 0, "away": 0, "lost": 1}


def test_a_lost_adapter_on_which_nothing_waits_is_a_note() -> None:
    """An adapter whose process is gone without having left is told, with since when and what to do."""
    for sight in (
        Sight(NOW, adapters=(LOST,)),
        Sight(NOW, adapters=(adapter(30),), dead_adapters=frozenset({"cloud"})),
    ):
        found = status_of(sight)
        assert found.healthy
        assert found.notes == (
            "adapter cloud is lost (last heartbeat 30s ago): nothing waits for it "
            "(fleet-adapter webhook --adapter-id cloud goes on with it)",
        )


def test_who_left_by_itself_is_not_lost() -> None:
    """An adapter whose process has left is neither a problem nor worth a note."""
    found = status_of(Sight(NOW, adapters=(AWAY,), groups=(RUNNING,)))
    assert (found.problems, found.notes) == ((), ())


def test_the_groups_of_a_lost_adapter_work_on() -> None:
    """Groups whose adapter is lost are counted and leave the fleet healthy; ended ones and others' are not counted."""
    groups = (RUNNING, replace(RUNNING, status=GroupStatus.STOPPED), replace(RUNNING, adapter_id="other"))
    found = status_of(Sight(NOW, adapters=(LOST,), groups=groups))
    assert found.healthy
    assert ": 1 open group waits for it (" in found.notes[0]


def test_commands_that_wait_for_a_lost_adapter_are_a_problem() -> None:
    """Nobody carries out what is ordered from a lost adapter: the fleet is unhealthy from the first command on."""
    taken = command(status=CommandStatus.TAKEN)
    found = status_of(Sight(NOW, adapters=(LOST,), groups=(RUNNING, RUNNING), commands=(taken,)))
    assert found.notes == ()
    assert found.problems == (
        "adapter cloud is lost (last heartbeat 30s ago): 2 open groups and 1 open command wait for it "
        "(fleet-adapter webhook --adapter-id cloud goes on with it)",
    )


def test_a_lost_adapter_that_is_paused_is_lost_as_well() -> None:
    """A pause hides neither that the process is gone nor what waits for it."""
    found = status_of(Sight(NOW, adapters=(adapter(99, **PAUSED),), commands=(command(99),)))
    assert [one.partition(" (")[0] for one in (*found.problems, *found.notes)] == [
        "adapter cloud is lost",
        f"adapter cloud is paused: {PAUSED['reason']}",
    ]


def test_a_paused_adapter_is_a_note_with_its_reason() -> None:
    """An adapter that its breaker or a person has paused is told with the reason, on one line, and how to resume it."""
    found = status_of(Sight(NOW, (worker(),), adapters=(adapter(**PAUSED),), pools=fixed(1)))
    assert found.healthy
    assert found.notes == (f"adapter cloud is paused: {PAUSED['reason']} (fleet adapter resume cloud)",)
    lines = adapter(status=AdapterStatus.PAUSED, reason="a\n b")
    assert status_of(Sight(NOW, adapters=(lines,))).notes == (
        "adapter cloud is paused: a b (fleet adapter resume cloud)",
    )
    nothing = adapter(status=AdapterStatus.PAUSED, reason=None)
    assert status_of(Sight(NOW, adapters=(nothing,))).notes == ("adapter cloud is paused (fleet adapter resume cloud)",)


@pytest.mark.parametrize("kept", [adapter(**PAUSED), LOST], ids=["paused", "lost"])
def test_whom_a_pool_without_workers_needs_is_a_problem(kept: AdapterRecord) -> None:
    """While a pool asks for workers and has none, an adapter that is kept from starting any makes the fleet unhealthy,
    unless another one is ready."""
    alone = Sight(NOW, adapters=(kept,), pools=fixed(1))
    assert [one.startswith("adapter cloud is ") for one in status_of(alone).problems] == [True]
    for served in (
        replace(alone, adapters=(kept, adapter(adapter_id="other"))),
        replace(alone, workers=(worker(),)),
        replace(alone, pools=fixed(0)),
    ):
        found = status_of(served)
        assert (found.problems, len(found.notes)) == ((), 1)


def test_a_command_that_a_standing_adapter_does_not_take_is_a_problem() -> None:
    """A command that waits for more than a minute although its adapter is there makes the fleet unhealthy."""
    in_time = Sight(NOW, adapters=(adapter(),), groups=(RUNNING,), commands=(command(UNTAKEN),))
    assert (status_of(in_time).problems, status_of(in_time).notes) == ((), ())
    late = replace(in_time, commands=(command(UNTAKEN + 0.001), command(75, command_id=2)))
    assert status_of(late).problems == (
        "2 open commands wait for adapter cloud, for 1m15s at most: it is there, and takes none (its log says why)",
    )
    taken = replace(in_time, commands=(command(75, status=CommandStatus.TAKEN),))
    assert status_of(taken).problems == ()


@pytest.mark.parametrize(
    ("adapters", "why"),
    [
        ((AWAY,), "it has left (fleet-adapter webhook --adapter-id cloud goes on with it)"),
        ((), "does fleet-scaler run on its host?"),
    ],
)
def test_a_command_to_an_adapter_that_is_away_is_a_note(adapters: tuple[AdapterRecord, ...], why: str) -> None:
    """Who left did so on purpose, and a scaler may be run by hand: what waits for them is told, with what to do."""
    found = status_of(Sight(NOW, adapters=adapters, groups=(RUNNING,), commands=(command(75),)))
    assert found.healthy
    assert found.notes == (f"1 open command waits for adapter cloud, for 1m15s at most: {why}",)


def test_the_scaler_acts_for_its_hosts_own_adapter() -> None:
    """What waits for the adapter of a host, for which nobody stands now, waits for the scaler there."""
    own = replace(AWAY, adapter_id="native:there", kind="native")
    found = status_of(Sight(NOW, adapters=(own,), commands=(command(75, adapter_id="native:there"),)))
    assert found.notes[0].endswith("for 1m15s at most: does fleet-scaler run on its host?")


def test_nobody_is_missed_for_a_group_that_has_ended() -> None:
    """A shutdown is overtaken by the end of its group, unless that has a name at its place, which may go on."""
    ended = replace(RUNNING, status=GroupStatus.STOPPED)
    found = status_of(Sight(NOW, adapters=(AWAY,), groups=(ended,), commands=(command(75),)))
    assert (found.problems, found.notes) == ((), ())
    named = replace(ended, reference="i-0abc")
    found = status_of(Sight(NOW, adapters=(AWAY,), groups=(named,), commands=(command(75),)))
    assert len(found.notes) == 1
