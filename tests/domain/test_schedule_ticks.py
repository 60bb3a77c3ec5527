"""Which ticks are due, and what becomes of missed ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.schedule import Missed, Schedule
from fleet.domain.ticks import MAX_MISSED, MAX_TASKS, PUNCTUAL, Due, due, newest_until, next_after, ticks_from

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time after noon."""
    return NOON + timedelta(seconds=seconds)


def schedule(missed: Missed = Missed.LATEST, **given: Any) -> Schedule:
    """Return a schedule of every minute, or with the times given."""
    return Schedule("s", "t", missed=missed, **(given or {"cron": "* * * * *"}))


def due_after(seconds: float, missed: Missed, **given: Any) -> Due:
    """Return what is due so long after the first tick at noon."""
    return due(schedule(missed, **given), NOON, at(seconds), NOON)


def test_an_interval_counts_from_when_it_was_added() -> None:
    """Without a start, the first tick comes one interval after the schedule was added."""
    assert next_after(schedule(every_seconds=90), NOON, NOON) == at(90)
    assert next_after(schedule(every_seconds=90), at(-7200), NOON) == at(90)
    assert next_after(schedule(every_seconds=90), at(89.999), NOON) == at(90)
    assert next_after(schedule(every_seconds=90), at(90), NOON) == at(180)


def test_an_interval_counts_from_its_start() -> None:
    """With a start, that is the first tick, and the others keep their distance from it."""
    later = schedule(every_seconds=60, starts_at=at(30))
    assert next_after(later, at(-500), at(7)) == at(30)
    assert next_after(later, at(30), at(7)) == at(90)
    assert next_after(later, at(1_000), at(7)) == at(1_050)


def test_cron_does_not_tick_before_its_start() -> None:
    """A tick at the start itself is one, an earlier one is not."""
    assert next_after(schedule(cron="* * * * *", starts_at=at(600)), NOON, NOON) == at(600)
    assert next_after(schedule(cron="* * * * *", starts_at=at(601)), NOON, NOON) == at(660)
    assert next_after(schedule(cron="* * * * *", starts_at=at(-600)), NOON, NOON) == at(60)


def test_a_punctual_tick_is_made() -> None:
    """Under every policy a tick that is due is made, and the next one is the one after it (SH06)."""
    for missed in Missed:
        assert due_after(0.0, missed) == Due((NOON,), (), False, NOON, at(60))
        assert due_after(59.999, missed) == Due((NOON,), (), False, NOON, at(60))


def test_latest_makes_the_newest_of_those_missed() -> None:
    """After eight hours of silence one task is enqueued, and the other ticks are recorded as missed (SH04)."""
    found = due_after(8 * 3600 + 5, Missed.LATEST)
    assert found.made == (at(8 * 3600),)
    assert found.missed == tuple(at(60 * minute) for minute in range(480))
    assert (found.last, found.next, found.unrecorded) == (at(8 * 3600), at(8 * 3600 + 60), False)


@pytest.mark.parametrize("missed", [Missed.LATEST, Missed.NONE])
def test_what_is_recorded_is_bounded(missed: Missed) -> None:
    """Of years of silence only so many ticks are recorded, and it is told that there were more (SH04)."""
    found = due_after(3 * 365 * 86_400 + 1, missed)
    assert len(found.missed) == MAX_MISSED
    assert found.unrecorded
    assert found.made == (at(3 * 365 * 86_400),)
    exactly = due_after(60 * MAX_MISSED, missed)
    assert (len(exactly.missed), exactly.unrecorded) == (MAX_MISSED - (missed is Missed.NONE), False)


def test_all_makes_every_tick_in_bounded_steps() -> None:
    """No tick is lost and none comes twice, at most so many at once (SH04)."""
    found, first = [], NOON
    while first <= at(60 * 250):
        step = due(schedule(Missed.ALL), first, at(60 * 250), NOON)
        assert len(step.made) <= MAX_TASKS
        found += step.made
        assert step.next is not None
        first = step.next
    assert found == [at(60 * minute) for minute in range(251)]


@pytest.mark.parametrize(("late", "made"), [(PUNCTUAL - 0.001, (NOON,)), (PUNCTUAL, (NOON,)), (PUNCTUAL + 0.001, ())])
def test_none_leaves_out_what_is_too_late(late: float, made: tuple[datetime, ...]) -> None:
    """A tick that is more than a minute late is recorded as missed, one that is less late is made (SH04)."""
    found = due_after(late, Missed.NONE, cron="0 * * * *")
    assert found == Due(made, () if made else (NOON,), False, NOON, at(3600))


def test_none_makes_what_is_still_punctual() -> None:
    """After a silence the punctual ones of several are made, in steps, and the others are missed."""
    found = due(schedule(Missed.NONE, every_seconds=10), NOON, at(3600), NOON, limit=3)
    assert found.made == (at(3540), at(3550), at(3560))
    assert len(found.missed) == 354
    assert found.next == at(3570)


def test_a_schedule_that_has_ended_has_no_next_tick() -> None:
    """At the end of the calendar nothing follows."""
    end = datetime(9999, 12, 31, 23, 0, tzinfo=UTC)
    assert due(schedule(every_seconds=7200), end, end, NOON).next is None
    assert list(ticks_from(schedule(every_seconds=7200), None, NOON)) == []


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["* * * * *", "*/7 1-3 * * *", "0 12 * * MON", "30 0 1 * *"]),
    st.integers(0, 40 * 86_400),
)
def test_the_newest_tick_is_the_one_that_none_follows(cron: str, seconds: int) -> None:
    """However long the silence was, the newest due tick is found: no due one follows it."""
    every = schedule(cron=cron)
    first = next_after(every, NOON, NOON)
    assert first is not None
    now = first + timedelta(seconds=seconds)
    newest = newest_until(every, first, now, NOON)
    following = next_after(every, newest, NOON)
    assert first <= newest <= now
    assert following is not None
    assert following > now
    assert next_after(every, newest - timedelta(milliseconds=1), NOON) == newest
