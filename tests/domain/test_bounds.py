"""Minimum and maximum by time of day, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.bounds import Bounds, bounds_at, read_schedule
from fleet.errors import UsageError

WORK = "mon-fri 08:00-20:00 Europe/Berlin min=4 max=40; sat min=1"


def at(text: str, schedule: str, least: int = 0, most: int | None = None) -> tuple[int, int | None]:
    """Return the bounds in force at a time in UTC."""
    bounds = bounds_at(datetime.fromisoformat(text).replace(tzinfo=UTC), least, most, schedule)
    return bounds.least, bounds.most


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-01-05T06:59:59.999", (0, None)),  # Monday, 07:59 in Berlin
        ("2026-01-05T07:00", (4, 40)),
        ("2026-01-05T18:59:59.999", (4, 40)),
        ("2026-01-05T19:00", (0, None)),
        ("2026-01-09T12:00", (4, 40)),
        ("2026-01-09T23:00", (1, None)),  # Saturday, 00:00 in Berlin: the zone of the rule before
        ("2026-01-10T22:59", (1, None)),
        ("2026-01-10T23:00", (0, None)),
    ],
)
def test_a_rule_holds_from_its_first_minute_until_before_its_last(time: str, expected: object) -> None:
    """Just before, at and after the hours of a rule, as the wall clock of its zone shows them."""
    assert at(time, WORK) == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-03-27T06:59", 0),  # Friday, winter: UTC+1
        ("2026-03-27T07:00", 4),
        ("2026-03-30T05:59", 0),  # Monday, summer: UTC+2
        ("2026-03-30T06:00", 4),
        ("2026-10-23T06:00", 4),
        ("2026-10-26T06:59", 0),
        ("2026-10-26T07:00", 4),
    ],
)
def test_hours_are_those_of_the_wall_clock_in_summer_and_winter(time: str, expected: int) -> None:
    """Eight in the morning is eight in the morning, before and after a change of the clock."""
    assert at(time, WORK)[0] == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-03-29T00:59", 0),  # 01:59; the hour from 02:00 to 03:00 does not exist on this day
        ("2026-03-29T01:00", 0),  # 03:00
        ("2026-03-28T01:30", 7),
        ("2026-10-25T00:00", 7),  # 02:00, and again an hour later
        ("2026-10-25T00:59", 7),
        ("2026-10-25T01:00", 7),
        ("2026-10-25T01:59", 7),
        ("2026-10-25T02:00", 0),  # 03:00
    ],
)
def test_an_hour_that_is_skipped_or_comes_twice(time: str, expected: int) -> None:
    """A rule over the hour in which clocks change holds not at all in spring, and for two hours in autumn."""
    assert at(time, "02:00-03:00 Europe/Berlin min=7")[0] == expected


def test_a_night_is_as_long_as_its_clock_says() -> None:
    """From ten at night to six, the night in which clocks go forward has seven hours and the other one nine."""
    for start, end in (("2026-03-28T21:00", "2026-03-29T04:00"), ("2026-10-24T20:00", "2026-10-25T05:00")):
        night = "sat 22:00-06:00 Europe/Berlin min=3"
        before = datetime.fromisoformat(start) - timedelta(minutes=1)
        last = datetime.fromisoformat(end) - timedelta(minutes=1)
        assert [at(str(time), night)[0] for time in (before, start, last, end)] == [0, 3, 3, 0]


def test_hours_past_midnight_belong_to_the_day_on_which_they_begin() -> None:
    """Friday's night goes on into Saturday, and Saturday's own night does not begin."""
    night = "fri 22:00-06:00 min=3"
    times = ["2026-01-09T21:59", "2026-01-09T22:00", "2026-01-10T05:59", "2026-01-10T06:00", "2026-01-10T22:00"]
    assert [at(time, night)[0] for time in times] == [0, 3, 3, 0, 0]
    assert at("2026-01-09T00:00", night)[0] == 0


def test_the_first_rule_whose_time_it_is_holds() -> None:
    """An exception stands before the rule; what a rule leaves open is the pool's own."""
    both = "mon 09:00-10:00 max=2; mon max=9 min=3; max=none"
    assert at("2026-01-05T09:30", both, 1, 20) == (1, 2)
    assert at("2026-01-05T10:30", both, 1, 20) == (3, 9)
    assert at("2026-01-06T10:30", both, 1, 20) == (1, None)
    assert bounds_at(datetime(2026, 1, 5, 9, tzinfo=UTC), 1, 20, both).rule == "mon 09:00-10:00 max=2"
    assert bounds_at(datetime(2026, 1, 5, 9, tzinfo=UTC), 1, 20, None) == Bounds(1, 20)


def test_a_minimum_above_the_maximum_gives_way() -> None:
    """A rule's minimum above the pool's maximum is the maximum, and a pool's minimum above a rule's maximum too."""
    assert at("2026-01-05T09:30", "min=30", 0, 8) == (8, 8)
    assert at("2026-01-05T09:30", "max=2", 5, 8) == (2, 2)


@pytest.mark.parametrize("days", ["fri-mon", "sun,mon,fri,sat", "FRI-SUN,mon"])
def test_days_go_round_the_week(days: str) -> None:
    """Days are single ones and spans, which may pass Sunday, in any case of letters."""
    held = [at(f"2026-01-{day:02}T12:00", f"{days} min=1")[0] for day in range(5, 12)]  # Monday to Sunday
    assert held == [1, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("  mon-fri   08:00-20:00 Europe/Berlin min=4  max=40 ;; sat min=1; ", WORK),
        ("min=1", "min=1"),
        ("08:00-24:00 max=3", "08:00-24:00 max=3"),
        ("America/Argentina/Ushuaia 8:00-9:00 max=none mon", "America/Argentina/Ushuaia 8:00-9:00 max=none mon"),
        ("mon min=1 MST", "mon min=1 MST"),
    ],
)
def test_what_is_stored_is_what_was_written(given: str, stored: str) -> None:
    """A schedule is kept in its own words, and reading what was kept gives the same."""
    assert read_schedule(given) == stored
    assert read_schedule(stored) == stored


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("mon-fri", "neither min nor max"),
        ("mon-fry min=1", "are no days"),
        ("monday min=1", "are no days"),
        ("25:00-26:00 min=1", "no time of day"),
        ("08:00-08:60 min=1", "no time of day"),
        ("08:00-08:00 min=1", "no time at all"),
        ("min=5 max=4", "min 5 is above max 4"),
        ("min=none", "min is a whole number"),
        ("min=1000000", "more than 100000"),
        ("min=-1", "none of its words"),
        ("min=1.5", "none of its words"),
        ("08:00 min=1", "none of its words"),
        ("min=1 min=2", "too many of its kind"),
        ("mon tue min=1", "too many of its kind"),
        ("UTC UTC min=1", "too many of its kind"),
        ("Europe/Atlantis min=1", "there is none"),
        ("Europe min=1", "there is none"),
        ("../etc min=1", "there is none"),
        (7, "write days"),
        (["mon min=1"], "write days"),
        ("; ".join(["min=1"] * 51), "50 at most"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_in_one_line(wrong: object, why: str) -> None:
    """What is wrong is said in one line that names the rule."""
    with pytest.raises(UsageError, match=why) as caught:
        read_schedule(wrong)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="mon-frisa 0123456789:;=UTCax/,.\n", max_size=40))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    """Whatever is written, it is either read, and what is kept means the same, or refused."""
    try:
        kept = read_schedule(text)
    except UsageError:
        return
    assert read_schedule(kept) == kept


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.sampled_from([None, WORK, "23:00-01:00 Pacific/Auckland min=8 max=9; max=3", "min=5", "max=none"]),
)
def test_bounds_never_contradict_each_other(
    moment: datetime, least: int, most: int | None, schedule: str | None
) -> None:
    """At any time the minimum is no more than the maximum."""
    bounds = bounds_at(moment.replace(tzinfo=UTC), least, most, schedule)
    assert bounds.most is None or 0 <= bounds.least <= bounds.most
