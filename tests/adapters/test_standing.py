"""An adapter that stands by itself, at a place that the test plays: nothing old, doubled or of others is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.adapters import AdapterFailed, Ended, Launch
from fleet.adapters.pulse import LONGEST_ACT, Pulse
from fleet.adapters.standing import StandingAdapter, Terms
from fleet.clock import ManualClock, SystemClock
from fleet.domain.adapters import Limits, NewAdapter, Tenure
from fleet.domain.group import CommandStatus, GroupRecord, GroupStatus, Template
from fleet.errors import ConflictError
from fleet.storage.interfaces import ProvenDead, Storage
from fleet.storage.times import stamp
from tests.adapters.ordering import requested
from tests.databases import opened
from tests.processes.running import wait_until
from tests.scaler.world import ADAPTER, PlayedAdapter
from tests.storage import plans
from tests.storage.samples import dead, everybody, execute, nobody, process

DAY = 86_400.0
TEMPLATE = Template("/usr/bin/python3", "/srv/app", {})


@pytest.fixture
def store(clocked: Storage) -> Storage:
    """Give a store in memory that goes by the clock."""
    return clocked


def run_once(store: Storage, place: PlayedAdapter, clock: ManualClock, proven_dead: ProvenDead = nobody) -> int:
    """Let an adapter process begin, do what is ordered, and go; return how many commands it carried out."""
    adapter = StandingAdapter(
        store,
        place,
        Terms(once=True),
        lambda pool: TEMPLATE,
        lambda: False,
        lambda *_: None,
        clock,
        proven_dead=proven_dead,
    )
    return adapter.run()


def statuses(store: Storage) -> list[CommandStatus]:
    """Return the states of all commands, oldest first."""
    return [one.status for one in reversed(store.control.commands())]


def test_orders_of_yesterday_are_not_carried_out(store: Storage, clock: ManualClock) -> None:
    """Starts that waited while their adapter was away a whole day are expired and start nobody (AD06)."""
    place = PlayedAdapter()
    groups = [requested(store, ADAPTER) for _ in range(5)]
    clock.advance(DAY)
    assert run_once(store, place, clock) == 0
    assert place.started == []
    assert statuses(store) == [CommandStatus.EXPIRED] * 5
    store.control.expire(None, nobody)
    assert {plans.group(store, one.group_id).status for one in groups} == {GroupStatus.FAILED}
    requested(store, ADAPTER)
    assert (run_once(store, place, clock), len(place.started)) == (1, 1)


@pytest.mark.parametrize("late", [False, True], ids=["within its time", "past its time"])
def test_an_order_holds_until_its_time(store: Storage, clock: ManualClock, late: bool) -> None:
    """Every order has a time at which it ends: at that instant it is carried out still, just after it is not (AD06)."""
    place = PlayedAdapter()
    requested(store, ADAPTER)
    [command] = store.control.commands()
    clock.advance((command.expires_at - store.now()).total_seconds() + (0.001 if late else 0.0))
    assert run_once(store, place, clock) == int(not late)
    assert statuses(store) == [CommandStatus.EXPIRED if late else CommandStatus.SUCCEEDED]


def test_a_command_that_comes_back_from_a_backup_is_not_carried_out(store: Storage, clock: ManualClock) -> None:
    """An ended command is remembered for longer than it held; one that somebody restores as pending after that time is
    refused as expired (AD09)."""
    place = PlayedAdapter()
    requested(store, ADAPTER)
    assert run_once(store, place, clock) == 1
    [command] = store.control.commands()
    held = (command.expires_at - command.created_at).total_seconds()
    clock.advance(held)
    store.control.prune(7 * DAY)
    assert statuses(store) == [CommandStatus.SUCCEEDED]
    clock.advance(0.001)
    execute(store, "UPDATE adapter_command SET status = 'pending', taken_by_json = NULL, finished_at = NULL")
    assert run_once(store, place, clock) == 0
    assert (len(place.started), statuses(store)) == (1, [CommandStatus.EXPIRED])


def test_a_command_that_comes_back_in_its_time_starts_no_second_group(store: Storage, clock: ManualClock) -> None:
    """A start that is delivered again while it holds finds its group up already, and starts nothing (AD08, AD09)."""
    place = PlayedAdapter()
    group = requested(store, ADAPTER)
    assert run_once(store, place, clock) == 1
    launched = plans.group(store, group.group_id)
    assert store.control.contact(group.group_id, group.launch_token, launched.process)
    execute(store, "UPDATE adapter_command SET status = 'pending', taken_by_json = NULL, finished_at = NULL")
    assert run_once(store, place, clock) == 1
    assert len(place.started) == 1
    [command] = store.control.commands()
    assert (command.reply or {})["skipped"] == "the group was withdrawn, or has come up already"


class Interrupted(PlayedAdapter):
    """A place whose first launch is there before its adapter loses the database."""

    def start_group(self, group: GroupRecord, template: Template) -> Launch:
        """Start the group, and fail as a lost connection does."""
        launch = super().start_group(group, template)
        self.left[group.group_id] = launch
        raise ConnectionError("the connection was lost")


def test_a_connection_that_is_lost_in_the_middle_doubles_nothing(store: Storage, clock: ManualClock) -> None:
    """After a connection was lost between launch and note, the next process joins the launch that is there (AD08)."""
    place = Interrupted()
    group = requested(store, ADAPTER)
    with pytest.raises(ConnectionError, match="the connection was lost"):
        run_once(store, place, clock)
    assert statuses(store) == [CommandStatus.TAKEN]
    assert run_once(store, place, clock, everybody) == 1
    assert (len(place.started), statuses(store)) == (1, [CommandStatus.SUCCEEDED])
    assert plans.group(store, group.group_id).process == place.left[group.group_id].process


def stand(store: Storage, adapter_id: str, pid: int) -> Tenure:
    """Let a process stand for an adapter."""
    return store.adapters.stand(NewAdapter(adapter_id, "native", process(pid), Limits(), 30.0))


def test_a_command_is_answered_once_and_by_who_stands_for_its_adapter(store: Storage) -> None:
    """The first valid answer counts: one from an earlier epoch, a second one, and one of another adapter close nothing,
    and count for no failure of the adapter (AD07, AD13)."""
    first = stand(store, "a", 7)
    stand(store, "b", 9)
    requested(store, "a")
    [command] = store.control.take_commands("a", None, process(7), nobody, first)
    second = stand(store, "a", 8)
    assert store.control.take_commands("a", None, process(8), nobody, second)
    for stranger in (7, 9):
        assert not store.control.finish_command(command.command_id, process(stranger), error_code=500)
    assert statuses(store) == [CommandStatus.TAKEN]
    assert store.control.finish_command(command.command_id, process(8), reply={"workers": 1})
    assert not store.control.finish_command(command.command_id, process(8), error_code=500, error_message="again")
    [ended] = store.control.commands()
    assert (ended.status, ended.reply, ended.error_code) == (CommandStatus.SUCCEEDED, {"workers": 1}, None)
    assert [one.consecutive_failures for one in store.adapters.list()] == [0, 0]


def test_nobody_acts_for_another_adapter(store: Storage) -> None:
    """A tenure is of one adapter: with it nobody takes another's commands, beats for it, or signs it off (AD13)."""
    mine = stand(store, "a", 7)
    stand(store, "b", 9)
    stand(store, "b", 9)
    requested(store, "b")
    assert store.control.take_commands("b", None, process(7), dead(9), mine) == ()
    assert store.control.take_commands("b", None, process(7), nobody) == ()
    forged = replace(mine, adapter_id="b")
    assert store.adapters.beat(forged, Limits(99)) is None
    assert not store.adapters.leave(forged)
    other = store.adapters.get("b")
    assert other is not None
    assert (other.limits, other.process, other.lease_expires_at is None) == (
        Limits(base_capabilities={}),
        process(9),
        False,
    )


def test_one_that_goes_again_puts_nobody_out_of_its_place(store: Storage, clock: ManualClock) -> None:
    """A run from time to time under the id of a process that is there to stay is refused, and changes nothing; after
    another such run, and once that process is gone, it is not."""
    assert run_once(store, PlayedAdapter(), clock) == 0
    stand(store, ADAPTER, 7)
    before = store.adapters.get(ADAPTER)
    with pytest.raises(ConflictError, match=f"pid 7 on host-a stands for adapter {ADAPTER}: leave out --once"):
        run_once(store, PlayedAdapter(), clock)
    assert store.adapters.get(ADAPTER) == before
    assert run_once(store, PlayedAdapter(), clock, dead(7)) == 0
    assert run_once(store, PlayedAdapter(), clock) == 0


@pytest.mark.parametrize(
    "arguments", ["{}", "[]", "null", '{"group_id": "nope"}', '{"group_id": "\\ud800"}', '{"group_id": 7}']
)
@pytest.mark.parametrize("kind", ["start_worker_group", "shutdown_worker_group"])
def test_orders_about_no_group_are_refused(store: Storage, clock: ManualClock, kind: str, arguments: str) -> None:
    """What a stranger orders about a group that there is not, or that no group can be called, fails with 404, and what
    was ordered beside it is carried out."""
    execute(
        store,
        "INSERT INTO adapter_command (adapter_id, pool, kind, arguments_json, status, created_at, expires_at) "
        "SELECT :adapter, 'default', :kind, :arguments, 'pending', :at, :until",
        adapter=ADAPTER,
        kind=kind,
        arguments=arguments,
        at=stamp(store.now()),
        until=stamp(store.now() + timedelta(hours=1)),
    )
    requested(store, ADAPTER)
    assert run_once(store, PlayedAdapter(), clock) == 2
    assert statuses(store) == [CommandStatus.FAILED, CommandStatus.SUCCEEDED]
    assert store.control.commands()[-1].error_code == 404


class Broken:
    """The heartbeats of a database in which something is wrong for a while."""

    def __init__(self, store: Storage) -> None:
        self.adapters, self.beats = self, 0
        self._beat = store.adapters.beat

    def beat(self, *given: Any) -> Any:
        """Fail as an odd row makes it fail; from the third time on, beat."""
        self.beats += 1
        if self.beats < 3:
            raise TypeError("unsupported operand")
        return self._beat(*given)


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Storage]:
    """Give a store that two threads can use at once."""
    storage = opened(str(tmp_path / "fleet.db"), create=True)
    yield storage
    storage.close()


def test_a_heartbeat_that_fails_is_not_the_last(file_store: Storage) -> None:
    """Whatever makes a heartbeat fail, the next one is sent."""
    tenure = stand(file_store, ADAPTER, 7)
    broken = Broken(file_store)
    with Pulse(broken, tenure, 0.01, SystemClock()) as pulse:  # type: ignore[arg-type]
        pulse.gets_on(replace(PlayedAdapter().info(), problem="no answer"))
        wait_until(lambda: (file_store.adapters.get(ADAPTER) or tenure).reason == "no answer", "it beats again")  # type: ignore[union-attr]
    assert not pulse.is_replaced
    assert broken.beats >= 3


class Read(ManualClock):
    """A clock that stands still and counts how often it is read."""

    reads = 0

    def boottime(self) -> float:
        """Return the time."""
        self.reads += 1
        return super().boottime()


def test_one_that_hangs_beats_no_more(file_store: Storage) -> None:
    """An adapter that has not got on for minutes is left to be taken for lost, until it gets on again."""
    broken, clock = Broken(file_store), Read()
    with Pulse(broken, stand(file_store, ADAPTER, 7), 0.01, clock) as pulse:  # type: ignore[arg-type]
        pulse.gets_on(PlayedAdapter().info())
        wait_until(lambda: broken.beats, "it beats")
        clock.advance(LONGEST_ACT)
        began = clock.reads
        wait_until(lambda: clock.reads > began + 1, "the last beat is over")
        sent, began = broken.beats, clock.reads
        wait_until(lambda: clock.reads > began + 3, "it was time for several")
        assert broken.beats == sent
        pulse.gets_on(PlayedAdapter().info())
        wait_until(lambda: broken.beats > sent, "it beats again")


class Unlisted(PlayedAdapter):
    """A place that is asked in vain what stands there, though it says what it can take."""

    def ended_groups(self) -> tuple[Ended, ...]:
        """Fail."""
        raise AdapterFailed("no list today")


def test_what_does_not_go_is_told_once(store: Storage, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A place that answers one question and not another is told of once, however often it is asked."""
    looks = iter(range(4))

    def wait(seconds: float, _descriptor: int | None) -> None:
        clock.advance(seconds)

    StandingAdapter(
        store, Unlisted(), Terms(), lambda pool: TEMPLATE, lambda: next(looks, None) is None, wait, clock, nobody
    ).run()
    told = [record.message for record in caplog.records if "not known" in record.message]
    assert told == ["what stands at the place is not known: no list today"]
    assert "no longer so" not in caplog.text
