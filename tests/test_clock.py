"""The host's clock, in the precision of a row."""

from datetime import UTC, datetime

import pytest

from fleet import clock


def test_wall_time_is_cut_to_milliseconds_and_follows_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of one millisecond holds for that one alone, also when the clock is set back."""
    told = clock.SystemClock()
    for nanoseconds, milliseconds in ((1_700_000_000_123_999_999, 123), (1_700_000_000_124_000_000, 124)) * 2:
        monkeypatch.setattr("fleet.clock.time.time_ns", lambda now=nanoseconds: now)
        for _ in range(2):
            assert told.now() == datetime(2023, 11, 14, 22, 13, 20, milliseconds * 1000, tzinfo=UTC)


def test_wall_time_is_the_hosts() -> None:
    """It lies between two readings of the host's own."""
    before = clock.truncated(datetime.now(UTC))
    assert before <= clock.SystemClock().now() <= datetime.now(UTC)
