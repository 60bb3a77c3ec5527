"""Schedules: stored, ticked, paused, pruned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.retry import RetryPolicy
from fleet.domain.schedule import Missed, Overlap, Schedule, ScheduleRecord, TickOutcome
from fleet.domain.task import NewTask, TaskFilter
from fleet.domain.ticks import MAX_MISSED
from fleet.errors import ConflictError, UsageError
from fleet.storage.interfaces import Storage
from tests.ageing import age
from tests.storage.samples import claim_one, enqueue_one, execute, finish, join, row, statuses, success

HOURLY = Schedule("s", "t", every_seconds=3600)
MINUTELY = Schedule("s", "t", every_seconds=60, overlap=Overlap.ALLOW)


def get(store: Storage, name: str = "s") -> ScheduleRecord:
    """Return a schedule, which must be there."""
    record = store.schedules.get(name)
    assert record is not None
    return record


def outcomes(store: Storage, name: str = "s") -> list[str]:
    """Return what became of a schedule's ticks, oldest first."""
    return [str(tick.outcome) for tick in reversed(store.schedules.ticks(name, 10_000))]


def tasks(store: Storage) -> list[int]:
    """Return the ids of all tasks, oldest first."""
    return sorted(task.task_id for task in store.queue.list(TaskFilter(limit=10_000)))


def kinds(store: Storage) -> list[str]:
    """Return the kinds of the events about schedules, in order."""
    return [event["kind"] for event in store.control.events(0, 1_000) if event["kind"].startswith("schedule_")]


def test_a_schedule_is_read_as_it_was_given(store: Storage) -> None:
    """All that is said of a schedule is stored, its zone included, and its first tick is the next one (SH08)."""
    given = Schedule(
        "s",
        "t",
        payload_json='{"a":1}',
        options={"queue": "q", "requires": {"gpu": 1}},
        cron="15 2 * * *",
        tz="Australia/Lord_Howe",
        missed=Missed.ALL,
        overlap=Overlap.ALLOW,
        starts_at=store.now() + timedelta(days=400),
    )
    record = store.schedules.add(given)
    assert record == get(store)
    assert record.schedule == given
    assert (record.paused, record.last_tick_at, record.last_task_id) == (False, None, None)
    assert record.next_tick_at is not None
    assert given.starts_at is not None
    assert timedelta() <= record.next_tick_at - given.starts_at <= timedelta(days=1)


def test_schedules_are_listed_by_name(store: Storage) -> None:
    """The list has every schedule, by name; an unknown one is none."""
    for name in ("b", "a", "c"):
        store.schedules.add(replace(HOURLY, name=name))
    assert [record.schedule.name for record in store.schedules.list()] == ["a", "b", "c"]
    assert store.schedules.get("x") is None
    assert store.schedules.ticks("x") == ()


def test_a_name_is_taken_once(store: Storage) -> None:
    """A second schedule of a name is refused, and changes nothing, unless it is to replace the first."""
    first = store.schedules.add(HOURLY)
    with pytest.raises(ConflictError, match="schedule s is there already: add --replace"):
        store.schedules.add(replace(HOURLY, task="other"))
    assert get(store) == first
    assert store.schedules.add(replace(HOURLY, task="other"), replace=True).schedule.task == "other"
    assert kinds(store) == ["schedule_added", "schedule_replaced"]


def test_replacing_keeps_a_due_tick(store: Storage) -> None:
    """A schedule that is replaced by one of the same times loses no tick: deploying is no reason to miss one."""
    store.schedules.add(MINUTELY)
    age(store, 90)
    before = get(store)
    after = store.schedules.add(replace(MINUTELY, payload_json='{"v":2}'), replace=True)
    assert (after.next_tick_at, after.created_at) == (before.next_tick_at, before.created_at)
    assert store.schedules.tick() == 1
    assert row(store, tasks(store)[0]).payload_json == '{"v":2}'


def test_other_times_begin_now(store: Storage) -> None:
    """A schedule whose zone or times are changed ticks from now on: nothing is made up for (SH04)."""
    store.schedules.add(replace(HOURLY, every_seconds=None, cron="*/5 * * * *"))
    age(store, 8 * 3600)
    changed = replace(HOURLY, every_seconds=None, cron="*/5 * * * *", tz="Europe/Prague")
    record = store.schedules.add(changed, replace=True)
    assert record.next_tick_at is not None
    assert record.next_tick_at > store.now()
    assert store.schedules.tick() == 0


@pytest.mark.parametrize("bad", [{"cron": "x", "every_seconds": None}, {"tz": "Mars/Base"}, {"options": {"queue": 5}}])
def test_a_senseless_schedule_is_not_stored(store: Storage, bad: dict[str, Any]) -> None:
    """What could not be ticked is refused when it is added."""
    with pytest.raises(UsageError, match="schedule s: "):
        store.schedules.add(replace(HOURLY, **bad))
    assert store.schedules.list() == ()


def test_what_never_ticks_is_not_stored(store: Storage) -> None:
    """A schedule without any tick after its start is refused."""
    start = store.now().replace(year=9999, month=12, day=30)
    with pytest.raises(UsageError, match="would never tick"):
        store.schedules.add(replace(HOURLY, every_seconds=None, cron="0 0 1 1 *", starts_at=start))
    assert store.schedules.list() == ()


def test_a_due_tick_becomes_a_task(store: Storage) -> None:
    """A tick enqueues the task with its payload and options, and is a row that names it."""
    options = {"queue": "q", "priority": 3, "timeout": 9.0, "max_attempts": 2, "concurrency_key": "c"}
    store.schedules.add(replace(HOURLY, payload_json='{"a": 1}', options={**options, "requires": {"gpu": 2}}))
    assert store.schedules.tick() == 0
    due_at = get(store).next_tick_at
    assert due_at is not None
    age(store, 3600)
    assert store.schedules.tick() == 1
    [tick] = store.schedules.ticks("s")
    assert (tick.tick_at, tick.outcome) == (due_at - timedelta(seconds=3600), TickOutcome.ENQUEUED)
    assert tick.task_id is not None
    task = row(store, tick.task_id)
    assert (task.task, task.payload_json, task.queue, task.priority) == ("t", '{"a":1}', "q", 3)
    assert (task.timeout_seconds, task.max_attempts, task.concurrency_key) == (9.0, 2, "c")
    assert (task.requires, task.status) == ({"gpu": 2}, "pending")
    record = get(store)
    assert (record.last_tick_at, record.last_task_id) == (tick.tick_at, tick.task_id)
    assert record.next_tick_at == due_at


def test_a_tick_is_made_once(store: Storage) -> None:
    """However often somebody looks, a tick is made once (SH06)."""
    store.schedules.add(HOURLY)
    age(store, 3600)
    assert [store.schedules.tick() for _ in range(5)] == [1, 0, 0, 0, 0]
    assert len(tasks(store)) == 1


def test_retry_policy_of_a_schedule(store: Storage) -> None:
    """A retry policy given with the schedule is the task's."""
    policy = RetryPolicy("fixed", 7.0, 7.0)
    store.schedules.add(replace(HOURLY, options={"retry": policy.as_json()}))
    age(store, 3600)
    store.schedules.tick()
    [stored] = execute(store, "SELECT CAST(retry_json AS text) AS retry FROM work_queue")
    assert '"fixed"' in stored["retry"]


def test_latest_enqueues_one_task_after_a_silence(store: Storage) -> None:
    """After eight hours of silence a minutely schedule enqueues one task; the other ticks are recorded (SH04)."""
    store.schedules.add(MINUTELY)
    age(store, 8 * 3600 + 30)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["missed"] * 479 + ["enqueued"]
    assert store.schedules.tick() == 0


def test_a_very_long_silence_stays_bounded(store: Storage) -> None:
    """After a year one task is enqueued, so many ticks are recorded, and an event says that there were more (SH04)."""
    store.schedules.add(MINUTELY)
    age(store, 365 * 86_400)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["missed"] * MAX_MISSED + ["enqueued"]
    assert kinds(store) == ["schedule_added", "schedule_missed"]
    assert store.schedules.tick() == 0


def test_all_enqueues_every_tick_in_bounded_passes(store: Storage) -> None:
    """Under `all` every missed tick becomes a task, at most a hundred a pass, none twice (SH04)."""
    store.schedules.add(replace(MINUTELY, missed=Missed.ALL))
    age(store, 250 * 60 + 30)
    assert [store.schedules.tick() for _ in range(4)] == [100, 100, 50, 0]
    assert outcomes(store) == ["enqueued"] * 250
    assert len({tick.task_id for tick in store.schedules.ticks("s", 1_000)}) == 250


def test_none_leaves_out_what_is_late(store: Storage) -> None:
    """Under `none` a tick that is more than a minute late is recorded as missed, and no task is enqueued (SH04)."""
    store.schedules.add(replace(HOURLY, missed=Missed.NONE))
    age(store, 3600 + 120)
    assert store.schedules.tick() == 0
    assert outcomes(store) == ["missed"]
    age(store, 3600 - 120)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["missed", "enqueued"]


def test_a_tick_over_an_open_task_is_skipped(store: Storage) -> None:
    """While the last tick's task is open, a tick is recorded as skipped; once it has ended, the next one is made."""
    store.schedules.add(HOURLY)
    age(store, 3600)
    assert store.schedules.tick() == 1
    age(store, 3600)
    assert store.schedules.tick() == 0
    task = claim_one(store, join(store))
    age(store, 3600)
    assert store.schedules.tick() == 0
    assert outcomes(store) == ["enqueued", "skipped", "skipped"]
    assert get(store).last_task_id == task.task_id
    execute(store, "UPDATE work_queue SET status = 'done'")
    age(store, 3600)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["enqueued", "skipped", "skipped", "enqueued"]


def test_overlapping_ticks_may_be_allowed(store: Storage) -> None:
    """Where overlap is allowed, every tick is made, whatever became of the last one's task."""
    store.schedules.add(replace(HOURLY, overlap=Overlap.ALLOW))
    for _ in range(3):
        age(store, 3600)
        assert store.schedules.tick() == 1
    assert statuses(store, tasks(store)) == ["pending"] * 3


def test_pruned_tasks_change_nothing(store: Storage) -> None:
    """Deleting every finished task neither repeats nor loses a tick: what was made is known without them (DB08)."""
    store.schedules.add(HOURLY)
    age(store, 3600)
    store.schedules.tick()
    who = join(store)
    assert finish(store, who, success(claim_one(store, who))) == 1
    next_tick = get(store).next_tick_at
    assert store.queue.prune(0.0) == 1
    assert tasks(store) == []
    assert store.schedules.tick() == 0
    assert get(store).next_tick_at == next_tick
    age(store, 3600)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["enqueued", "enqueued"]


def test_a_tick_that_is_there_is_not_made_again(store: Storage) -> None:
    """A schedule that somebody sets back makes no tick twice: the tick's row decides (SH01)."""
    store.schedules.add(MINUTELY)
    age(store, 60)
    assert store.schedules.tick() == 1
    execute(store, "UPDATE work_schedule SET next_tick_at = last_tick_at")
    assert store.schedules.tick() == 0
    assert len(tasks(store)) == 1
    record = get(store)
    assert record.last_tick_at is not None
    assert record.next_tick_at == record.last_tick_at + timedelta(seconds=60)
    assert record.last_task_id == tasks(store)[0]


def test_a_paused_schedule_does_not_tick(store: Storage) -> None:
    """Ticks of a paused schedule are left out; resumed, it ticks from then on, and makes up for none."""
    store.schedules.add(MINUTELY)
    assert store.schedules.pause("s", True)
    assert store.schedules.pause("s", True)
    age(store, 3600)
    assert store.schedules.tick() == 0
    assert get(store).paused
    assert store.schedules.pause("s", False)
    assert store.schedules.tick() == 0
    age(store, 60)
    assert store.schedules.tick() == 1
    assert outcomes(store) == ["enqueued"]
    assert kinds(store) == ["schedule_added", "schedule_paused", "schedule_resumed"]
    assert not store.schedules.pause("x", True)


def test_resuming_what_is_not_paused_keeps_a_due_tick(store: Storage) -> None:
    """A schedule that was not paused loses no tick by being resumed."""
    store.schedules.add(MINUTELY)
    age(store, 60)
    assert store.schedules.pause("s", False)
    assert store.schedules.tick() == 1


def test_a_removed_schedule_is_gone_with_its_ticks(store: Storage) -> None:
    """Removing deletes schedule and ticks; tasks stay, and the name is free."""
    store.schedules.add(MINUTELY)
    age(store, 60)
    store.schedules.tick()
    assert store.schedules.remove("s")
    assert not store.schedules.remove("s")
    assert store.schedules.ticks("s") == ()
    assert len(tasks(store)) == 1
    store.schedules.add(MINUTELY)


@pytest.mark.parametrize(
    "damage",
    [
        "options_json = '[]'",
        """options_json = '{"queue": 5}'""",
        """options_json = '{"colour": "red"}'""",
        "payload_json = '[1]'",
        "cron = 'x', every_seconds = NULL",
        "every_seconds = 0.001",
        "tz = 'Mars/Base'",
        "task = 'a b'",
    ],
)
def test_an_unreadable_schedule_is_paused_and_others_go_on(store: Storage, damage: str) -> None:
    """A schedule that somebody's SQL made unreadable is paused, an event says why, and the others tick."""
    for name in ("a", "b", "c"):
        store.schedules.add(replace(MINUTELY, name=name))
    execute(store, f"UPDATE work_schedule SET {damage} WHERE name = 'a'".replace(": ", r"\: "))
    age(store, 61)
    assert store.schedules.tick() == 2
    assert [record.paused for record in store.schedules.list()] == [True, False, False]
    [event] = [one for one in store.control.events(0, 100) if one["kind"] == "schedule_paused"]
    assert event["subject"] == "a"
    assert "it cannot be ticked, and is paused: schedule a: " in event["text"]
    with pytest.raises(UsageError, match="schedule a: "):
        store.schedules.pause("a", False)
    assert store.schedules.tick() == 0


@pytest.mark.parametrize(
    "damage", ["tz = X'00ff'", "task = X'00ff'", "every_seconds = 'soon'", "starts_at = '2026-13-39T29:59:00.000Z'"]
)
def test_values_of_other_types_are_unreadable_too(sqlite_file: Storage, damage: str) -> None:
    """SQLite keeps values of any type in any column: they pause their schedule, and resuming says what is wrong."""
    for name in ("a", "b"):
        sqlite_file.schedules.add(replace(MINUTELY, name=name))
    age(sqlite_file, 61)
    execute(sqlite_file, f"UPDATE work_schedule SET {damage} WHERE name = 'a'".replace(":", r"\:"))
    assert sqlite_file.schedules.tick() == 1
    assert kinds(sqlite_file)[2:] == ["schedule_paused"]
    with pytest.raises(UsageError, match=r"schedule a: its row cannot be read: .* fleet schedule remove a"):
        sqlite_file.schedules.pause("a", False)
    assert sqlite_file.schedules.tick() == 0


def test_a_taken_key_leaves_one_open_task(store: Storage) -> None:
    """A tick whose task has a dedupe key that is taken names the task that has it."""
    there = enqueue_one(store, dedupe_key="k")
    store.schedules.add(replace(MINUTELY, options={"dedupe_key": "k"}))
    age(store, 60)
    store.schedules.tick()
    assert tasks(store) == [there]
    assert store.schedules.ticks("s")[0].task_id == there


def test_many_schedules_are_ticked_in_bounded_passes(store: Storage) -> None:
    """A pass looks at a bounded number of due schedules, the longest due first; the rest follow."""
    for number in range(5):
        store.schedules.add(replace(MINUTELY, name=f"s{number}"))
    age(store, 60)
    assert [store.schedules.tick(2) for _ in range(4)] == [2, 2, 1, 0]


def test_the_next_tick_is_what_becomes_due_next(store: Storage) -> None:
    """Whoever sleeps until something is due wakes for a tick, but not for one of a paused schedule."""
    store.schedules.add(HOURLY)
    seconds = store.queue.next_due_in()
    assert seconds is not None
    assert 3590 < seconds <= 3600
    store.schedules.pause("s", True)
    assert store.queue.next_due_in() is None


def test_old_ticks_are_pruned_but_the_last(store: Storage) -> None:
    """Ticks beyond their retention are deleted in bounded batches; each schedule's last stays, whatever its age."""
    for name in ("a", "b"):
        store.schedules.add(replace(MINUTELY, name=name))
    age(store, 10 * 60)
    store.schedules.tick()
    assert store.schedules.prune(3600) == 0
    age(store, 7200)
    assert store.schedules.prune(3600, limit=7) == 7
    assert store.schedules.prune(3600, limit=100) == 11
    assert store.schedules.prune(3600, limit=100) == 0
    assert [len(store.schedules.ticks(name)) for name in ("a", "b")] == [1, 1]


def test_what_was_just_recorded_is_kept_for_its_time(store: Storage) -> None:
    """Ticks that were missed long ago are kept from when that was recorded: who comes back after a year can read it."""
    store.schedules.add(MINUTELY)
    age(store, 10 * 3600)
    store.schedules.tick()
    recorded = outcomes(store)
    assert "missed" in recorded
    assert store.schedules.prune(3600) == 0
    assert outcomes(store) == recorded


def test_the_newest_ticks_come_first(store: Storage) -> None:
    """Ticks are read newest first, as many as are asked for."""
    store.schedules.add(MINUTELY)
    age(store, 5 * 60)
    store.schedules.tick()
    found = store.schedules.ticks("s", 3)
    assert len(found) == 3
    assert [tick.tick_at for tick in found] == sorted((tick.tick_at for tick in found), reverse=True)
    assert found[0].outcome is TickOutcome.ENQUEUED


def test_ticking_without_due_ticks_takes_no_write_lock(sqlite_file: Storage) -> None:
    """Looking for due ticks writes nothing while another has the write lock."""
    sqlite_file.schedules.add(HOURLY)
    sqlite_file.queue.enqueue([NewTask("t")])
    with sqlite_file.transaction():
        assert sqlite_file.schedules.tick() == 0
        assert sqlite_file.schedules.prune(0.0) == 0
