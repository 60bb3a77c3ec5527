from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.durations import MAX_SECONDS, format_seconds, parse_duration, parse_time
from fleet.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7_200),
        ("7d", 604_800),
        ("250ms", 0.25),
        (" 1.5 H ", 5_400),
        ("0", 0),
    ],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    """A number with an optional unit is a duration in seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-5", "5x", "1h30m", "1e3", "inf", "nan", "5 minutes", "9" * 400, "3651d", "1\n2"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Negative, endless or unreadable durations are a usage error that quotes them."""
    with pytest.raises(UsageError, match=r"^duration"):
        parse_duration(text)


@given(st.floats(0, MAX_SECONDS))
def test_every_allowed_number_of_seconds_parses(seconds: float) -> None:
    """Every duration up to ten years can be written in seconds."""
    assert parse_duration(f"{seconds:.3f}s") == pytest.approx(seconds, abs=0.001)


def test_a_time_with_a_zone_is_read_as_utc() -> None:
    """A time is read in the zone that it names and kept in UTC (CK08)."""
    expected = datetime(2030, 1, 31, 7, 0, tzinfo=UTC)
    for text in ("2030-01-31T08:00:00+01:00", "2030-01-31T07:00:00Z", "2030-01-31T12:30:00+05:30"):
        assert parse_time(text) == expected
        assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["2030-01-01T00:00:00", "2030-01-01", "tomorrow", "", "2030-13-01T00:00:00Z", "12:00Z"]
)
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    """A time that names no zone, or is no time, is refused and never read in the local zone (CK08)."""
    with pytest.raises(UsageError, match=r"^time"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_beyond_the_calendar_is_refused(text: str) -> None:
    """A time that has no UTC form is a usage error, not a crash."""
    with pytest.raises(UsageError, match=r"^time"):
        parse_time(text)


offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=offsets))
def test_every_zoned_time_keeps_its_instant(moment: datetime) -> None:
    """Whatever the offset, the instant is kept (CK07)."""
    assert parse_time(moment.isoformat()) == moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (4.2, "4.2s"), (59, "59s"), (60, "1m00s"), (190, "3m10s"), (7_500, "2h05m"), (90_000, "1d01h")],
)
def test_seconds_are_shown_shortly(seconds: float, text: str) -> None:
    """Ages and waits are shown in two units at most."""
    assert format_seconds(seconds) == text
