"""Cron's fields in time zones: both changes of the clock in four of them, one of half an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.cron import check_cron, cron_after, is_fixed, zone_of
from fleet.domain.schedule import Schedule
from fleet.domain.ticks import ticks_from
from fleet.errors import UsageError

# Two days around each change of 2026: (zone, local day of the change, when the night before begins in UTC).
FORWARD = {
    "Europe/London": "2026-03-29",
    "Europe/Prague": "2026-03-29",
    "America/New_York": "2026-03-08",
    "Australia/Lord_Howe": "2026-10-04",
}
BACK = {
    "Europe/London": "2026-10-25",
    "Europe/Prague": "2026-10-25",
    "America/New_York": "2026-11-01",
    "Australia/Lord_Howe": "2026-04-05",
}


def day(cron: str, zone_name: str, date: str) -> list[str]:
    """Return the ticks of a local day, as its clock and offset show them."""
    zone = zone_of(zone_name)
    begin = datetime.fromisoformat(date).replace(tzinfo=zone)
    end = (begin.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone)
    schedule = Schedule("s", "t", cron=cron, tz=zone_name)
    first = cron_after(cron, zone, begin.astimezone(UTC) - timedelta(seconds=1))
    found = []
    for tick in islice(ticks_from(schedule, first, begin), 2_000):
        if tick >= end.astimezone(UTC):
            break
        found.append(tick.astimezone(zone).strftime("%H:%M%z"))
    return found


def between(ticks: list[str], first: str, last: str) -> list[str]:
    """Return the ticks whose clock time is in a range."""
    return [tick for tick in ticks if first <= tick[:5] <= last]


@pytest.mark.parametrize("cron", ["15 2 * * *", "45 1 * * *", "0 3 * * *", "30 0 * * *"])
@pytest.mark.parametrize("days", [FORWARD, BACK], ids=["forward", "back"])
@pytest.mark.parametrize("zone", FORWARD)
def test_a_fixed_time_comes_once_a_day(zone: str, days: dict[str, str], cron: str) -> None:
    """A fixed time comes exactly once on the day on which the clock is changed (SH05)."""
    assert len(day(cron, zone, days[zone])) == 1


@pytest.mark.parametrize(
    ("zone", "cron", "tick"),
    [
        ("Europe/London", "45 1 * * *", "02:00+0100"),
        ("Europe/London", "15 2 * * *", "02:15+0100"),
        ("Europe/Prague", "15 2 * * *", "03:00+0200"),
        ("Europe/Prague", "45 1 * * *", "01:45+0100"),
        ("America/New_York", "15 2 * * *", "03:00-0400"),
        ("America/New_York", "45 1 * * *", "01:45-0500"),
        ("Australia/Lord_Howe", "15 2 * * *", "02:30+1100"),
        ("Australia/Lord_Howe", "45 1 * * *", "01:45+1030"),
    ],
)
def test_a_fixed_time_in_the_gap_comes_right_after_it(zone: str, cron: str, tick: str) -> None:
    """What the clock jumps over comes at the first moment after the gap; other times are as always (SH05)."""
    assert day(cron, zone, FORWARD[zone]) == [tick]


@pytest.mark.parametrize(
    ("zone", "cron", "tick"),
    [
        ("Europe/London", "45 1 * * *", "01:45+0100"),
        ("Europe/Prague", "15 2 * * *", "02:15+0200"),
        ("America/New_York", "45 1 * * *", "01:45-0400"),
        ("Australia/Lord_Howe", "45 1 * * *", "01:45+1100"),
        ("Australia/Lord_Howe", "15 2 * * *", "02:15+1030"),
    ],
)
def test_a_fixed_time_that_occurs_twice_comes_at_the_first(zone: str, cron: str, tick: str) -> None:
    """Of two equal times of a day the first counts (SH05)."""
    assert day(cron, zone, BACK[zone]) == [tick]


def test_in_the_second_of_two_equal_hours_nothing_is_repeated() -> None:
    """Whoever looks in the second of two equal hours finds no tick of the first, but the next day's."""
    second_pass = datetime(2026, 10, 25, 1, 50, tzinfo=UTC)
    assert second_pass.astimezone(zone_of("Europe/London")).hour == 1
    again = cron_after("55 1 * * *", zone_of("Europe/London"), second_pass)
    assert again == datetime(2026, 10, 26, 1, 55, tzinfo=UTC)


def test_several_fixed_times_in_one_gap_come_once() -> None:
    """Two times of one schedule that the clock jumps over become one tick."""
    assert day("15,45 2 * * *", "Europe/Prague", FORWARD["Europe/Prague"]) == ["03:00+0200"]


@pytest.mark.parametrize(("zone", "hours"), [("Australia/Lord_Howe", 0.5), ("Europe/London", 1), ("Europe/Prague", 1)])
@pytest.mark.parametrize("cron", ["*/15 * * * *", "* * * * *", "*/5 * * * *"])
def test_short_intervals_follow_elapsed_time(zone: str, hours: float, cron: str) -> None:
    """Every so many minutes means so many real minutes, through both changes of the clock (SH05)."""
    minutes = {"*/15 * * * *": 15, "* * * * *": 1, "*/5 * * * *": 5}[cron]
    for days, length in ((FORWARD, 24 - hours), (BACK, 24 + hours)):
        assert len(day(cron, zone, days[zone])) == length * 60 / minutes


@pytest.mark.parametrize(
    ("zone", "days", "ticks"),
    [
        ("Europe/London", FORWARD, ["00:00+0000", "02:00+0100", "03:00+0100"]),
        ("Europe/London", BACK, ["00:00+0100", "01:00+0100", "01:00+0000", "02:00+0000", "03:00+0000"]),
        ("Europe/Prague", FORWARD, ["00:00+0100", "01:00+0100", "03:00+0200"]),
        ("Australia/Lord_Howe", FORWARD, ["00:00+1030", "01:00+1030", "03:00+1100"]),
        ("Australia/Lord_Howe", BACK, ["00:00+1100", "01:00+1100", "02:00+1030", "03:00+1030"]),
    ],
)
def test_hourly_follows_elapsed_time(zone: str, days: dict[str, str], ticks: list[str]) -> None:
    """An hourly tick comes at each full hour that the clock really shows (SH05)."""
    assert between(day("0 * * * *", zone, days[zone]), "00:00", "03:00") == ticks


@pytest.mark.parametrize("days", [FORWARD, BACK], ids=["forward", "back"])
def test_the_hours_after_a_half_hour_shift_are_whole(days: dict[str, str]) -> None:
    """After a shift of half an hour no quarter is lost: cronsim's own walk over it loses the first two."""
    ticks = day("*/15 3 * * *", "Australia/Lord_Howe", days["Australia/Lord_Howe"])
    assert [tick[:5] for tick in ticks] == ["03:00", "03:15", "03:30", "03:45"]


def test_a_day_that_begins_in_a_gap() -> None:
    """Where the clock jumps over midnight, a midnight tick comes at the first moment of the day, once."""
    assert day("0 0 * * *", "America/Havana", "2026-03-08") == ["01:00-0400"]
    assert day("*/30 * * * *", "America/Havana", "2026-03-08")[:2] == ["01:00-0400", "01:30-0400"]


@pytest.mark.parametrize("zone", [*FORWARD, "America/Havana", "Africa/Casablanca", "UTC"])
@settings(max_examples=40, deadline=None)
@given(
    minute=st.sampled_from(["*", "*/15", "0", "45", "5,50", "*/7"]),
    hour=st.sampled_from(["*", "*/2", "2", "1,2", "0"]),
    weekday=st.sampled_from(["*", "SUN", "MON-FRI"]),
    hours=st.integers(0, 24 * 365),
    seconds=st.integers(0, 3599),
)
def test_ticks_are_what_looking_at_every_minute_finds(
    zone: str, minute: str, hour: str, weekday: str, hours: int, seconds: int
) -> None:
    """What follows elapsed time is the first minute, looked at one by one, whose wall clock matches."""
    cron = f"{minute} {hour} * * {weekday}"
    where = zone_of(zone)
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours, seconds=seconds)
    found = cron_after(cron, where, moment)
    assert found is not None
    assert found > moment
    if is_fixed(cron):
        return
    minutes = moment.replace(second=0) + timedelta(minutes=1)
    for _ in range(2 * 24 * 60):
        if _matches(cron, minutes.astimezone(where).replace(tzinfo=None)):
            assert found == minutes
            return
        if found == minutes:
            pytest.fail(f"{found} does not match")
        minutes += timedelta(minutes=1)


def _matches(cron: str, wall: datetime) -> bool:
    return cron_after(cron, zone_of("UTC"), wall.replace(tzinfo=UTC) - timedelta(seconds=1)) == wall.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "0 0 0 * *",
        "0 0 30 2 *",
        "*/0 * * * *",
        "@daily",
        "a b c d e",
        "٣ * * * *",
        "5-1 * * * *",
        ",".join(["1"] * 200) + " * * * *",
    ],
)
def test_senseless_fields_are_refused(text: str) -> None:
    """What are no five fields, or never match, is refused with what to write."""
    with pytest.raises(UsageError, match=r"cron .*write minute, hour"):
        check_cron(text)


@given(st.text("*/,-#L0123456789 AMONWF", max_size=30))
def test_any_text_is_fields_or_refused(text: str) -> None:
    """No text whatever makes anything but a check or a refusal."""
    try:
        check_cron(text)
    except UsageError:
        return
    cron_after(text, zone_of("Europe/Prague"), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "Europe", "localtime", "posixrules", "/etc/passwd", "../UTC", "a\0b"]
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    """Names that are no zone, or mean what the machine is set to, are refused (SH08)."""
    with pytest.raises(UsageError, match=r"time zone .*give an IANA name"):
        zone_of(name)


def test_rare_days_are_found_and_the_calendar_ends() -> None:
    """A leap day is found years ahead; after the calendar's end there is nothing."""
    prague = zone_of("Europe/Prague")
    assert cron_after("0 12 29 2 *", prague, datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2028, 2, 29, 11, tzinfo=UTC)
    assert cron_after("0 12 1 1 *", prague, datetime(9999, 6, 1, tzinfo=UTC)) is None
