"""Adapters as rows: who stands for an id, what is ordered from it, and what its refusals lead to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.adapters import (
    BREAKER,
    CAPACITY_EXCEEDED,
    AdapterRecord,
    AdapterStatus,
    Limits,
    NewAdapter,
    is_alive,
    is_lost,
)
from fleet.domain.group import BOOT_DEADLINE, CommandKind, CommandRecord, CommandStatus, GroupStatus
from fleet.domain.liveness import Gap
from fleet.domain.plan import StartGroup, decide
from fleet.domain.snapshot import PoolSettings
from fleet.errors import ConflictError
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.plans import ADAPTER, applied, begin, group, plan, starting
from tests.storage.samples import dead, execute, nobody, process

LIMITS = Limits(4, 2, {"gpu": 1}, {"mem": 64})


def adapter(adapter_id: str = ADAPTER, pid: int = 8, **given: object) -> NewAdapter:
    """Return what a process says that begins to stand for an adapter."""
    return replace(NewAdapter(adapter_id, "native", process(pid), LIMITS, 20.0), **given)  # type: ignore[arg-type]


def known(store: Storage, adapter_id: str = ADAPTER) -> AdapterRecord:
    """Return an adapter that there is."""
    found = store.adapters.get(adapter_id)
    assert found is not None
    return found


def events(store: Storage) -> list[str]:
    """Return the kinds of events about adapters, in order."""
    return [
        str(row["kind"])
        for row in execute(store, "SELECT kind FROM fleet_event WHERE kind LIKE 'adapter%' ORDER BY event_id")
    ]


def test_a_process_stands_for_an_adapter(store: Storage) -> None:
    """What it says of itself is its row, each heartbeat renews its lease and says anew what it can take."""
    tenure = store.adapters.stand(adapter())
    row = known(store)
    assert (row.kind, row.process, row.epoch, row.limits, row.status) == (
        "native",
        process(8),
        1,
        LIMITS,
        AdapterStatus.ACTIVE,
    )
    assert row.lease_expires_at is not None
    age(store, 15)
    more = replace(LIMITS, max_worker_groups=9)
    beaten = store.adapters.beat(tenure, more)
    assert beaten == known(store)
    assert beaten is not None
    assert beaten.limits == more
    assert beaten.lease_expires_at is not None
    assert beaten.lease_expires_at > store.now()
    assert store.adapters.leave(tenure)
    assert known(store).lease_expires_at is None
    assert events(store) == ["adapter_started", "adapter_stopped"]


def test_a_second_process_takes_over(store: Storage) -> None:
    """Of two processes under one id the later one stands for it: what the first one says changes nothing (AD13)."""
    first = store.adapters.stand(adapter())
    second = store.adapters.stand(adapter(pid=9))
    assert (first.epoch, second.epoch) == (1, 2)
    before = known(store)
    assert store.adapters.beat(first, Limits()) is None
    assert not store.adapters.leave(first)
    assert known(store) == before
    assert store.adapters.beat(second, LIMITS) is not None


def test_an_id_keeps_its_kind(store: Storage) -> None:
    """An adapter of another kind is refused an id that is taken."""
    store.adapters.stand(adapter())
    with pytest.raises(ConflictError, match=r"is of kind native, not webhook: choose another --adapter-id"):
        store.adapters.stand(adapter(kind="webhook"))
    assert known(store).epoch == 1


def test_commands_are_taken_by_who_stands_for_the_adapter(store: Storage) -> None:
    """While a process stands for an adapter nobody else takes its commands; it takes over what others had taken.
    Answers of its predecessors close nothing (AD07)."""
    current = begin(store)
    applied(store, starting(2), current)
    assert store.control.take_commands(ADAPTER, None, process(7), nobody)
    tenure = store.adapters.stand(adapter())
    [command] = store.control.take_commands(ADAPTER, None, process(8), nobody, tenure)
    assert command.taken_by == process(7)
    assert store.control.take_commands(ADAPTER, None, process(8), nobody, tenure) == ()
    assert store.control.take_commands(ADAPTER, None, process(7), dead(7)) == ()
    later = store.adapters.stand(adapter(pid=9))
    assert store.control.take_commands(ADAPTER, None, process(8), dead(9), tenure) == ()
    [again] = store.control.take_commands(ADAPTER, None, process(9), nobody, later)
    assert again.taken_by == process(8)
    for late in (7, 8):
        assert not store.control.finish_command(command.command_id, process(late), reply={"late": True})
    assert store.control.finish_command(command.command_id, process(9), reply={})
    [done] = store.control.commands()
    assert (done.status, done.reply) == (CommandStatus.SUCCEEDED, {})


@pytest.mark.parametrize("gone", ["lease", "proof"])
def test_the_scaler_acts_again_for_an_adapter_that_is_gone(store: Storage, gone: str) -> None:
    """When the process that stood for this host's adapter is lost, the scaler takes its commands as before."""
    store.adapters.stand(adapter())
    applied(store, starting(2), begin(store))
    assert store.control.take_commands(ADAPTER, None, process(7), nobody) == ()
    if gone == "lease":
        age(store, 21)
    proven = dead(8) if gone == "proof" else nobody
    assert len(store.control.take_commands(ADAPTER, None, process(7), proven)) == 1


def ordered(store: Storage, error_code: int | None) -> None:
    """Have one order taken, and refused with this code, or carried out."""
    [command] = store.control.take_commands(ADAPTER, None, process(8), nobody)
    message = None if error_code is None else "it is so"
    assert store.control.finish_command(command.command_id, process(8), error_code=error_code, error_message=message)


def test_refusals_back_off_and_a_success_ends_it(store: Storage) -> None:
    """An adapter whose orders fail is left alone, the longer the more have failed; a success ends that. What an order
    asks for in vain is no failure of the adapter, nor is want of room, for which it is left alone for a moment (AD02,
    LF02, LF04)."""
    store.adapters.leave(store.adapters.stand(adapter()))
    current = begin(store)
    for code in (500, 503, 403, CAPACITY_EXCEEDED):
        applied(store, starting(1), current)
        ordered(store, code)
    row = known(store)
    assert row.consecutive_failures == 2
    assert row.backoff_until is not None
    assert 8 < (row.backoff_until - store.now()).total_seconds() <= 10
    applied(store, starting(1), current)
    ordered(store, None)
    assert (known(store).consecutive_failures, known(store).backoff_until) == (0, None)


def test_after_many_refusals_an_adapter_is_paused_until_somebody_resumes_it(store: Storage) -> None:
    """After so many failures in a row the adapter is paused with the last one's words; resumed, it begins anew
    (LF04)."""
    store.adapters.leave(store.adapters.stand(adapter()))
    current = begin(store)
    for _ in range(BREAKER):
        assert known(store).status is AdapterStatus.ACTIVE
        applied(store, starting(1), current)
        ordered(store, 500)
    row = known(store)
    assert (row.status, row.reason) == (AdapterStatus.PAUSED, f"{BREAKER} orders in a row failed, the last: it is so")
    assert store.adapters.resume(ADAPTER)
    row = known(store)
    assert (row.status, row.reason, row.consecutive_failures, row.backoff_until) == (
        AdapterStatus.ACTIVE,
        None,
        0,
        None,
    )
    assert not store.adapters.resume(ADAPTER)
    assert store.adapters.pause(ADAPTER, "moving")
    assert not store.adapters.pause(ADAPTER, "again")
    assert known(store).reason == "moving"
    assert events(store)[2:] == ["adapter_paused", "adapter_resumed", "adapter_paused"]


def test_a_pass_sees_who_may_be_asked(store: Storage) -> None:
    """A pass may ask adapters for which a process stands, with their limits and groups, and this host's own adapter
    unless a process stands for a native one here."""
    current = begin(store)
    applied(store, starting(2), current)

    def asked() -> dict[str, int]:
        seen = store.control.snapshot("default", current.settings, ADAPTER, nobody)
        return {one.adapter_id: one.groups for one in seen.adapters}

    assert asked() == {ADAPTER: 1}
    cloud = store.adapters.stand(adapter("cloud", kind="webhook"))
    assert asked() == {"cloud": 0, ADAPTER: 1}
    here = store.adapters.stand(adapter("mine", pid=9))
    assert asked() == {"cloud": 0, "mine": 0}
    store.adapters.leave(here)
    store.adapters.leave(cloud)
    assert asked() == {ADAPTER: 1}


@pytest.mark.parametrize("gone", ["lease", "proof"])
def test_what_a_lost_adapter_has_not_begun_is_left_to_others(store: Storage, gone: str) -> None:
    """When an adapter is lost, maintenance ends the starts that it has not taken, so that others are asked at once;
    what it has taken waits for its boot deadline, and what it was to end is still to be ended. It is told of once."""
    tenure = store.adapters.stand(adapter())
    applied(store, starting(1), begin(store))
    [taken] = store.control.take_commands(ADAPTER, None, process(8), nobody, tenure)
    [waiting] = applied(store, starting(2)).groups
    ended = str(taken.arguments["group_id"])
    assert store.control.fail_group(ended, error="so be it")
    assert store.control.late_launch(ended, str(taken.arguments["launch_token"]), None, None) is not None
    assert store.control.expire(None, dead(9)) == ()
    proven = dead(8) if gone == "proof" else nobody
    age(store, 21 if gone == "lease" else 1)
    assert store.control.expire(None, proven) == (f"adapter {ADAPTER} is lost",)
    found = {(command.kind, command.command_id == taken.command_id): command.status for command in commands(store)}
    assert found == {
        (CommandKind.START_WORKER_GROUP, True): CommandStatus.TAKEN,
        (CommandKind.START_WORKER_GROUP, False): CommandStatus.EXPIRED,
        (CommandKind.SHUTDOWN_WORKER_GROUP, False): CommandStatus.PENDING,
    }
    lost = group(store, waiting)
    assert (lost.status, lost.error) == (GroupStatus.FAILED, f"adapter {ADAPTER} was lost before it started anything")
    assert is_lost(known(store), store.now(), proven)
    assert store.control.expire(None, proven) == ()
    assert events(store) == ["adapter_started", "adapter_lost"]


def test_a_lost_adapter_that_comes_back_is_asked_again(store: Storage) -> None:
    """An adapter that was only late beats, and stands for its id as before."""
    tenure = store.adapters.stand(adapter())
    age(store, 21)
    assert store.control.expire(None, nobody) == (f"adapter {ADAPTER} is lost",)
    beaten = store.adapters.beat(tenure, LIMITS)
    assert beaten is not None
    assert is_alive(beaten, store.now(), nobody)
    assert beaten.process == process(8)


def test_nobody_is_lost_for_a_time_in_which_nobody_watched(store: Storage) -> None:
    """After a gap, in which the whole host slept, an adapter has its lease anew."""
    store.adapters.stand(adapter())
    age(store, 3600)
    now = store.now()
    gap = Gap(now - timedelta(seconds=3600), now)
    assert store.control.expire(gap, nobody) == ()
    assert events(store) == ["adapter_started"]


def test_one_that_comes_from_time_to_time_is_believed_meanwhile(store: Storage) -> None:
    """An adapter that rests is asked without a process, is given its lease in which to begin, and is lost after it."""
    current = begin(store)
    tenure = store.adapters.stand(adapter(lease_seconds=150.0))
    assert store.adapters.rest(tenure)
    gone = dead(8)
    seen = store.control.snapshot("default", current.settings, "native:elsewhere", gone)
    assert [one.adapter_id for one in seen.adapters] == [ADAPTER, "native:elsewhere"]
    [group_id] = applied(store, starting(1), current).groups
    deadline = group(store, group_id).boot_deadline_at
    assert deadline is not None
    assert abs((deadline - store.now()).total_seconds() - BOOT_DEADLINE - 150) < 5
    age(store, 149)
    assert store.control.expire(None, gone) == ()
    assert store.control.take_commands(ADAPTER, None, process(7), gone) == ()
    age(store, 2)
    assert store.control.expire(None, gone) == (f"adapter {ADAPTER} is lost",)
    assert not store.adapters.rest(replace(tenure, epoch=7))


def commands(store: Storage) -> list[CommandRecord]:
    """Return all commands, oldest first."""
    return list(reversed(store.control.commands()))


def test_a_late_launch_is_ordered_to_end_once(store: Storage) -> None:
    """Where a launch stands that its group waits for no more is noted, and its end ordered, once; with another token
    nothing is."""
    current = begin(store)
    [group_id] = applied(store, starting(1), current).groups
    token = group(store, group_id).launch_token
    assert store.control.late_launch(group_id, "another", None, None) is None
    first = store.control.late_launch(group_id, token, "/log", "i-7")
    assert first is not None
    assert store.control.late_launch(group_id, token, None, None) is None
    row = group(store, group_id)
    assert (row.reference, row.log_path) == ("i-7", "/log")
    assert [command.kind for command in commands(store)][1:] == [CommandKind.SHUTDOWN_WORKER_GROUP]


def test_what_could_not_be_carried_out_is_kept_for_later(store: Storage) -> None:
    """A postponed command stays taken with its error, counts as a refusal, and is taken again after the pause."""
    tenure = store.adapters.stand(adapter())
    applied(store, starting(1), begin(store))
    [command] = store.control.take_commands(ADAPTER, None, process(8), nobody, tenure)
    assert not store.control.postpone_command(command.command_id, process(9), error_code=503, error_message="not mine")
    assert store.control.postpone_command(command.command_id, process(8), error_code=503, error_message="no answer")
    [kept] = commands(store)
    assert (kept.status, kept.error_code, kept.error_message) == (CommandStatus.TAKEN, 503, "no answer")
    assert known(store).consecutive_failures == 1
    me = lambda holder: holder == process(8)  # noqa: E731
    assert store.control.take_commands(ADAPTER, None, process(8), me, tenure) == ()
    age(store, 3)
    [again] = store.control.take_commands(ADAPTER, None, process(8), me, tenure)
    assert store.control.finish_command(again.command_id, process(8), reply={})
    [done] = commands(store)
    assert (done.status, done.error_code, done.error_message) == (CommandStatus.SUCCEEDED, None, None)
    assert known(store).consecutive_failures == 0


def test_want_of_room_keeps_only_what_wanted_room(store: Storage) -> None:
    """An adapter that had no room for one order still takes others: they may make room."""
    tenure = store.adapters.stand(adapter())
    current = begin(store)
    applied(store, starting(1), current)
    [command] = store.control.take_commands(ADAPTER, None, process(8), nobody, tenure)
    assert store.control.postpone_command(command.command_id, process(8), error_code=429, error_message="full")
    applied(store, starting(1), current)
    [other] = store.control.take_commands(ADAPTER, None, process(8), dead(8), tenure)
    assert other.command_id != command.command_id


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("workers_per_group", 0),
        ("workers_per_group", -3),
        ("workers_per_group", 1.5),
        ("workers_per_group", "many"),
        ("max_worker_groups", "x"),
        ("priority", "high"),
        ("consecutive_failures", "x"),
        ("lease_seconds", "l"),
        ("base_capabilities_json", '{"gpu": "x", "mem": 2}'),
        ("on_request_json", '{"gpu": "x"}'),
        ("on_request_json", "[1]"),
    ],
)
def test_nonsense_in_an_adapters_row_is_no_limit(memory: Storage, column: str, value: object) -> None:
    """What a stranger wrote where a number belongs counts as not said: passes decide and refusals are counted."""
    current = begin(memory)
    memory.adapters.stand(adapter("cloud", kind="webhook"))
    execute(memory, f"UPDATE worker_adapter SET {column} = :value", value=value)
    row = known(memory, "cloud")
    assert (row.limits.workers_per_group or 1) >= 1
    assert isinstance(row.priority, int)
    settings = PoolSettings("fixed", {"target_workers": 5}, 1)
    seen = memory.control.snapshot("default", settings, ADAPTER, nobody)
    assert sum(start.size for start in decide(seen).starts) >= 5
    applied(memory, plan(starts=(StartGroup("cloud", 1),)), current)


@pytest.mark.parametrize("column", ["target_size", "lease_seconds"])
def test_nonsense_in_a_groups_row_stops_no_pass(memory: Storage, column: str) -> None:
    """A group whose size or lease a stranger wrote as a word counts for nobody, and is written off in its time."""
    current = begin(memory)
    applied(memory, starting(2), current)
    execute(memory, f"UPDATE worker_group SET {column} = 'x'")
    seen = memory.control.snapshot("default", PoolSettings("fixed", {"target_workers": 5}, 1), ADAPTER, nobody)
    assert sum(start.size for start in decide(seen).starts) == (5 if column == "target_size" else 3)
    age(memory, BOOT_DEADLINE + 1)
    memory.control.expire(None, nobody)
    assert [one.status for one in memory.control.groups()] == [GroupStatus.FAILED]


def test_a_hosts_own_adapter_can_be_paused_before_it_has_started_anything(store: Storage) -> None:
    """Who wants no workers on a host pauses its adapter beforehand; what is no host's adapter must be there first."""
    assert store.adapters.pause("native:host-b", "a small machine")
    assert known(store, "native:host-b").status is AdapterStatus.PAUSED
    assert not store.adapters.pause("cloud", "what cloud?")
