from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.group import BOOT_DEADLINE, CommandStatus, GroupOrders, GroupStatus, NewGroup
from fleet.domain.worker import WorkerStatus
from fleet.storage.interfaces import SettingsChange, Storage
from tests.ageing import age
from tests.storage.plans import ADAPTER, applied, begin, group, requested_group, starting
from tests.storage.samples import dead, everybody, join, nobody, process

SUPERVISOR = process(5)
ORDERS = GroupOrders(GroupStatus.RUNNING, 2)


def by_hand(**given: object) -> NewGroup:
    """Return a group that a person started."""
    sample = NewGroup("hand-1", "default", 2, "token-1", SUPERVISOR, 20.0, {"gpu": 1}, "/var/log/w.log")
    return replace(sample, **given)  # type: ignore[arg-type]


def failures(store: Storage) -> tuple[int, float]:
    """Return an adapter's failures in a row, and for how many seconds it is left alone."""
    current = begin(store)
    seen = store.control.snapshot("default", current.settings, ADAPTER, nobody)
    (adapter,) = seen.adapters
    until = adapter.backoff_until
    return adapter.consecutive_failures, (until - seen.now).total_seconds() if until else 0.0


def test_a_launch_becomes_its_group(store: Storage) -> None:
    """The process of a launch is noted, and its contact turns the group running with its orders."""
    wanted = requested_group(store)
    assert store.control.launching(wanted.group_id, wanted.launch_token, SUPERVISOR, "/log")
    noted = group(store, wanted.group_id)
    assert (noted.status, noted.process, noted.log_path) == (GroupStatus.LAUNCHING, SUPERVISOR, "/log")
    assert store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR) == ORDERS
    running = group(store, wanted.group_id)
    assert running.status is GroupStatus.RUNNING
    assert running.process == SUPERVISOR
    assert running.contacted_at is not None
    assert running.lease_expires_at is not None


def test_contact_may_come_before_the_launchers_note(store: Storage) -> None:
    """A launch that is quicker than its launcher's note runs all the same, and the note comes too late."""
    wanted = requested_group(store)
    assert store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR) == ORDERS
    assert not store.control.launching(wanted.group_id, wanted.launch_token, process(6), None)
    assert group(store, wanted.group_id).process == SUPERVISOR


def test_a_doubled_launch_is_refused(store: Storage) -> None:
    """Of two launches of one group the first becomes it, and the second is refused (AD01)."""
    wanted = requested_group(store)
    assert store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR) == ORDERS
    before = group(store, wanted.group_id)
    assert store.control.contact(wanted.group_id, wanted.launch_token, process(6)) is None
    assert group(store, wanted.group_id) == before


def test_the_same_process_may_repeat_its_contact(store: Storage) -> None:
    """A supervisor whose reply was lost, or whose keeper was replaced, makes contact again."""
    wanted = requested_group(store)
    for _ in range(2):
        assert store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR) == ORDERS


@pytest.mark.parametrize("refused", ["contact", "launching"])
def test_a_launch_needs_its_token(store: Storage, refused: str) -> None:
    """A wrong token, or an unknown group, becomes nothing."""
    wanted = requested_group(store)
    for group_id, token in ((wanted.group_id, "wrong"), ("unknown", wanted.launch_token)):
        if refused == "contact":
            assert store.control.contact(group_id, token, SUPERVISOR) is None
        else:
            assert not store.control.launching(group_id, token, SUPERVISOR, None)
    assert group(store, wanted.group_id) == wanted


@pytest.mark.parametrize("end", ["fail", "stop", "end"])
def test_a_late_launch_is_refused(store: Storage, end: str) -> None:
    """A launch of a group that has failed, or was told to stop, exits without becoming it."""
    wanted = requested_group(store)
    ways: dict[str, Callable[[], bool]] = {
        "fail": lambda: store.control.fail_group(wanted.group_id, error="x"),
        "stop": lambda: store.control.stop_group(wanted.group_id, reason="x"),
        "end": lambda: store.control.end_group(wanted.group_id),
    }
    assert ways[end]()
    assert store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR) is None
    assert not store.control.launching(wanted.group_id, wanted.launch_token, SUPERVISOR, None)


def test_a_group_by_hand_runs_at_once(store: Storage) -> None:
    """A group that a person started is running from its first row, and has no adapter."""
    assert store.control.add_group(by_hand()) == ORDERS
    record = group(store, "hand-1")
    assert (record.status, record.adapter_id, record.pool) == (GroupStatus.RUNNING, None, "default")
    assert (record.process, record.capabilities, record.log_path) == (SUPERVISOR, {"gpu": 1}, "/var/log/w.log")
    assert record.lease_seconds == 20.0
    assert record.lease_expires_at is not None
    assert record.boot_deadline_at is None


def test_a_groups_beat_renews_its_lease(store: Storage) -> None:
    """A group's heartbeat renews its lease and returns its orders."""
    store.control.add_group(by_hand())
    age(store, 15)
    assert store.control.beat_group("hand-1", SUPERVISOR) == ORDERS
    record = group(store, "hand-1")
    assert record.last_heartbeat is not None
    assert record.last_heartbeat - record.created_at >= timedelta(seconds=15)
    assert record.lease_expires_at == record.last_heartbeat + timedelta(seconds=20)


def test_a_strangers_beat_is_refused(store: Storage) -> None:
    """A beat of another process, of an unknown group, or of an ended one renews nothing."""
    store.control.add_group(by_hand())
    before = group(store, "hand-1")
    assert store.control.beat_group("hand-1", process(6)) is None
    assert store.control.beat_group("hand-1", replace(SUPERVISOR, start_ticks=1)) is None
    assert store.control.beat_group("unknown", SUPERVISOR) is None
    assert group(store, "hand-1") == before
    store.control.end_group("hand-1")
    assert store.control.beat_group("hand-1", SUPERVISOR) is None


def test_stopping_a_group_drains_its_workers(store: Storage) -> None:
    """A group that is told to stop has target 0 and its workers terminating, and no others."""
    store.control.add_group(by_hand())
    join(store, "a", group_id="hand-1")
    join(store, "b")
    assert store.control.stop_group("hand-1", reason="scaled in")
    assert store.control.beat_group("hand-1", SUPERVISOR) == GroupOrders(GroupStatus.STOPPING, 0)
    a, b = store.registry.list()
    assert (a.status, a.stop_reason) == (WorkerStatus.TERMINATING, "scaled in")
    assert b.status is WorkerStatus.ACTIVE


def test_a_group_ends_once(store: Storage) -> None:
    """A group that ended stays as it ended, whatever comes later (ST07)."""
    store.control.add_group(by_hand())
    assert store.control.end_group("hand-1", exit_code=0)
    before = group(store, "hand-1")
    assert (before.status, before.exit_code) == (GroupStatus.STOPPED, 0)
    assert not store.control.end_group("hand-1", exit_code=1)
    assert not store.control.fail_group("hand-1", error="x")
    assert not store.control.stop_group("hand-1", reason="x")
    assert group(store, "hand-1") == before
    for verb in (
        store.control.end_group("unknown"),
        store.control.fail_group("unknown", error="x"),
        store.control.stop_group("unknown", reason="x"),
    ):
        assert verb is False


def test_a_failed_launch_keeps_its_reason(store: Storage) -> None:
    """A failed launch is stored with its reason and exit code, and is no longer supply."""
    wanted = requested_group(store)
    text = "ModuleNotFoundError: No module named 'jobs'\nlog tail"
    assert store.control.fail_group(wanted.group_id, error=text, exit_code=3)
    record = group(store, wanted.group_id)
    assert (record.status, record.error, record.exit_code) == (GroupStatus.FAILED, text, 3)
    assert store.control.groups("default", live_only=True) == ()
    assert not store.control.fail_group(wanted.group_id, error="again")
    assert failures(store)[0] == 1


def test_a_guessed_reason_is_replaced_by_a_better_one(store: Storage) -> None:
    """The reason of a failed group can be explained later; no other group's can."""
    wanted = requested_group(store)
    assert not store.control.explain_group(wanted.group_id, error="too early")
    store.control.fail_group(wanted.group_id, error="the launch did not register", exit_code=None)
    assert store.control.explain_group(wanted.group_id, error="ImportError: jobs", exit_code=1)
    assert store.control.explain_group(wanted.group_id, error="ImportError: no jobs")
    record = group(store, wanted.group_id)
    assert (record.status, record.error, record.exit_code) == (GroupStatus.FAILED, "ImportError: no jobs", 1)
    assert not store.control.explain_group("unknown", error="x")


def test_failed_launches_back_the_adapter_off(store: Storage) -> None:
    """Every launch that fails in a row doubles the time for which its adapter is left alone (LF02)."""
    waits = []
    for count in (1, 2, 3):
        wanted = requested_group(store)
        store.control.fail_group(wanted.group_id, error="x")
        number, wait = failures(store)
        assert number == count
        waits.append(wait)
    assert 0 < waits[0] < waits[1] < waits[2]


def test_a_success_ends_the_back_off(store: Storage) -> None:
    """A launch that comes up resets its adapter's failures."""
    store.control.fail_group(requested_group(store).group_id, error="x")
    wanted = requested_group(store)
    store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR)
    assert failures(store) == (0, 0.0)


def test_one_pools_failures_do_not_hold_up_another(store: Storage) -> None:
    """A pool whose launches fail backs off alone, though another uses the same adapter (LF02)."""
    store.control.fail_group(requested_group(store).group_id, error="x")
    other = begin(store, pool="other")
    assert store.control.snapshot("other", other.settings, ADAPTER, nobody).adapters[0].consecutive_failures == 0
    assert failures(store)[0] == 1


def test_a_changed_setting_is_tried_at_once(store: Storage) -> None:
    """Failures under former settings do not hold up what a person has just mended."""
    store.control.fail_group(requested_group(store).group_id, error="x")
    store.control.end_pass(begin(store, change=SettingsChange(policy="fixed", settings={"target_workers": 7})))
    assert failures(store) == (0, 0.0)


def test_a_crash_after_a_good_start_is_no_launch_failure(store: Storage) -> None:
    """A group that ran and then died does not back its adapter off."""
    wanted = requested_group(store)
    store.control.contact(wanted.group_id, wanted.launch_token, SUPERVISOR)
    assert store.control.fail_group(wanted.group_id, error="killed by signal 9")
    assert failures(store) == (0, 0.0)


def test_a_launch_fails_only_with_its_token(store: Storage) -> None:
    """A launch that names a token fails its group only if the token is the group's."""
    wanted = requested_group(store)
    assert not store.control.fail_group(wanted.group_id, error="x", launch_token="wrong")
    assert group(store, wanted.group_id) == wanted
    assert store.control.fail_group(wanted.group_id, error="x", launch_token=wanted.launch_token)


def test_groups_are_listed_newest_first(store: Storage) -> None:
    """Groups are listed newest first, by pool, live ones alone if asked."""
    store.control.add_group(by_hand())
    age(store, 10)
    store.control.add_group(by_hand(group_id="hand-2", launch_token="token-2", pool="images"))
    age(store, 10)
    store.control.add_group(by_hand(group_id="hand-3", launch_token="token-3"))
    store.control.end_group("hand-3")
    assert [each.group_id for each in store.control.groups()] == ["hand-3", "hand-2", "hand-1"]
    assert [each.group_id for each in store.control.groups("default")] == ["hand-3", "hand-1"]
    assert [each.group_id for each in store.control.groups("default", live_only=True)] == ["hand-1"]
    assert store.control.group("unknown") is None


def test_commands_are_taken_once(store: Storage) -> None:
    """An adapter's pending commands are taken by one process, with who took them (AD01)."""
    written = applied(store, starting(1, 1))
    assert store.control.take_commands("other:adapter", None, process(8), nobody) == ()
    assert store.control.take_commands(ADAPTER, "other-pool", process(8), nobody) == ()
    taken = store.control.take_commands(ADAPTER, "default", process(8), nobody)
    assert [command.command_id for command in taken] == list(written.commands)
    assert {(each.status, each.taken_by) for each in store.control.commands()} == {(CommandStatus.TAKEN, process(8))}
    assert store.control.take_commands(ADAPTER, None, process(9), nobody) == ()


def test_a_dead_takers_commands_are_taken_again(store: Storage) -> None:
    """Commands whose taker is proven dead are taken by the next, who learns whose they were (AD01)."""
    applied(store, starting(1))
    store.control.take_commands(ADAPTER, None, process(8), nobody)
    [again] = store.control.take_commands(ADAPTER, None, process(9), dead(8))
    assert again.taken_by == process(8)
    assert store.control.commands()[0].taken_by == process(9)


def test_open_commands_are_those_that_nobody_has_finished(store: Storage) -> None:
    """Pending and taken commands are open; finished and expired ones are not."""
    first, second = applied(store, starting(1, 1)).commands
    assert [each.command_id for each in store.control.open_commands()] == [first, second]
    store.control.take_commands(ADAPTER, None, process(8), nobody)
    assert {each.status for each in store.control.open_commands()} == {CommandStatus.TAKEN}
    assert store.control.finish_command(first, process(8), reply={})
    assert [each.command_id for each in store.control.open_commands()] == [second]
    age(store, BOOT_DEADLINE + 1)
    store.control.expire(None, nobody)
    assert store.control.open_commands() == ()


def test_a_command_is_closed_once(store: Storage) -> None:
    """A taken command ends with a reply or an error; one that is not taken, or has ended, does not (AD07)."""
    first, second = applied(store, starting(1, 1)).commands
    assert not store.control.finish_command(first, process(8), reply={})
    store.control.take_commands(ADAPTER, None, process(8), nobody)
    assert store.control.finish_command(first, process(8), reply={"group_id": "g"})
    assert store.control.finish_command(second, process(8), error_code=429, error_message="full")
    assert not store.control.finish_command(first, process(8), error_code=500, error_message="late")
    assert not store.control.finish_command(99_999, process(8), reply={})
    newest, oldest = store.control.commands()
    assert (oldest.command_id, oldest.status, oldest.reply) == (first, CommandStatus.SUCCEEDED, {"group_id": "g"})
    assert (newest.status, newest.error_code, newest.error_message) == (CommandStatus.FAILED, 429, "full")
    assert oldest.finished_at is not None
    assert [command.command_id for command in store.control.commands(1)] == [second]


def test_commands_expire(store: Storage) -> None:
    """A command that nobody took in time is never carried out (AD06)."""
    applied(store, starting(1))
    [command] = store.control.commands()
    age(store, (command.expires_at - command.created_at).total_seconds() + 1)
    assert store.control.take_commands(ADAPTER, None, process(8), nobody) == ()
    store.control.expire(None, nobody)
    assert store.control.commands()[0].status is CommandStatus.EXPIRED
    assert not store.control.finish_command(command.command_id, process(8), reply={})


def test_a_launch_that_never_came_fails_at_its_boot_deadline(store: Storage) -> None:
    """A group without contact counts as failed after its boot deadline, and not before (LF05)."""
    wanted = requested_group(store)
    store.control.take_commands(ADAPTER, None, process(8), nobody)
    store.control.launching(wanted.group_id, wanted.launch_token, SUPERVISOR, None)
    age(store, BOOT_DEADLINE - 2)
    store.control.expire(None, nobody)
    assert group(store, wanted.group_id).status is GroupStatus.LAUNCHING
    age(store, 2.001)
    lines = store.control.expire(None, nobody)
    record = group(store, wanted.group_id)
    assert record.status is GroupStatus.FAILED
    assert record.error
    assert any(wanted.group_id in line for line in lines)
    assert store.control.expire(None, nobody) == ()
    assert failures(store)[0] == 1


def test_a_launch_proven_dead_fails_at_once(store: Storage) -> None:
    """A launch whose process is proven dead does not wait for its boot deadline (LF05)."""
    wanted = requested_group(store)
    store.control.launching(wanted.group_id, wanted.launch_token, SUPERVISOR, None)
    assert store.control.expire(None, dead(5))
    assert group(store, wanted.group_id).status is GroupStatus.FAILED


@pytest.mark.parametrize("how", ["proof", "lease"])
def test_a_group_without_its_supervisor_fails(store: Storage, how: str) -> None:
    """A running group whose supervisor is proven dead, or silent past its lease, has failed."""
    store.control.add_group(by_hand())
    age(store, 18)
    assert store.control.expire(None, nobody) == ()
    if how == "lease":
        age(store, 2.001)
    assert store.control.expire(None, everybody if how == "proof" else nobody)
    assert group(store, "hand-1").status is GroupStatus.FAILED


def test_a_stopping_group_is_closed_when_its_supervisor_is_gone(store: Storage) -> None:
    """A group that was told to stop and whose supervisor is gone does not stay `stopping` for ever."""
    store.control.add_group(by_hand())
    store.control.stop_group("hand-1", reason="x")
    store.control.expire(None, everybody)
    assert group(store, "hand-1").status in (GroupStatus.STOPPED, GroupStatus.FAILED)
