from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.limits import MAX_RATE_PER_SECOND, MAX_RUNNING, Limit, limit_for
from fleet.errors import UsageError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "given_settings",
    [
        {},
        {"max_running": -1},
        {"max_running": MAX_RUNNING + 1},
        {"rate": 1},
        {"per_seconds": 1, "max_running": 1},
        {"rate": 0, "per_seconds": 1},
        {"rate": -1, "per_seconds": -1},
        {"rate": 1, "per_seconds": 0},
        {"rate": float("nan"), "per_seconds": 1},
        {"rate": MAX_RATE_PER_SECOND + 1, "per_seconds": 1},
        {"rate": 1, "per_seconds": 1, "burst": 0},
        {"rate": 1, "per_seconds": 1, "burst": MAX_RUNNING + 1},
        {"max_running": 1, "burst": 2},
    ],
)
def test_senseless_limits_are_refused(given_settings: dict[str, Any]) -> None:
    """What limits nothing, or cannot be kept, is refused with the key's name."""
    with pytest.raises(UsageError, match="limit k"):
        Limit("k", **given_settings)


def test_the_closest_limit_is_in_force() -> None:
    """A key's own limit wins, then the pattern with the longest beginning; without any there is none."""
    limits = [Limit(key, max_running=1) for key in ("*", "api:*", "api:big*", "api:big", "other")]
    found = {
        key: getattr(limit_for(key, limits), "key", None) for key in ("api:big", "api:bigger", "api:a", "api", "other")
    }
    assert found == {"api:big": "api:big", "api:bigger": "api:big*", "api:a": "api:*", "api": "*", "other": "other"}
    assert limit_for("x", limits[1:]) is None
    assert limit_for("x", []) is None


@pytest.mark.parametrize("key", ["a?c", "a%c", "a_c", "[a]"])
def test_only_a_star_at_the_end_is_a_pattern(key: str) -> None:
    """What other languages call wild cards are letters like any other."""
    limit = Limit(key, max_running=1)
    assert not limit.is_pattern
    assert limit.covers(key)
    assert not limit.covers("abc")


def starts(limit: Limit, moments: list[datetime]) -> list[datetime]:
    """Return those of these moments at which a start was allowed, each start counted."""
    state, found = None, []
    for moment in moments:
        if limit.may_start(state, moment):
            state = limit.after_start(state, moment)
            found.append(moment)
    return found


def every(seconds: float, steps: int) -> list[datetime]:
    """Return moments that are so far apart."""
    return [NOW + timedelta(seconds=seconds) * number for number in range(steps)]


def offsets(moments: list[datetime]) -> list[float]:
    """Return moments as seconds from the first there is."""
    return [(moment - NOW).total_seconds() for moment in moments]


def test_starts_are_spaced_to_the_millisecond() -> None:
    """At 2 in a second a start is allowed 500 ms after the last, and not a millisecond earlier."""
    limit = Limit("k", rate=2, per_seconds=1)
    state = limit.after_start(None, NOW)
    assert not limit.may_start(state, NOW + timedelta(milliseconds=499))
    assert limit.may_start(state, NOW + timedelta(milliseconds=500))
    assert limit.may_start(state, NOW + timedelta(milliseconds=501))


def test_a_burst_then_the_rate_then_the_burst_again() -> None:
    """Three start at once, the others a second apart; a pause of 10 s earns three again, and no more."""
    limit = Limit("k", rate=1, per_seconds=1, burst=3)
    busy = starts(limit, [NOW] * 5 + every(0.25, 21))
    assert offsets(busy) == [0, 0, 0, 1, 2, 3, 4, 5]
    state = None
    for moment in busy:
        state = limit.after_start(state, moment)
    later = NOW + timedelta(seconds=15)
    again = 0
    while limit.may_start(state, later):
        state, again = limit.after_start(state, later), again + 1
    assert again == 3


def test_a_number_alone_does_not_limit_the_rate() -> None:
    """A limit of running tasks says nothing of when they start."""
    assert Limit("k", max_running=1).may_start(NOW + timedelta(days=1), NOW)


@given(
    rate=st.integers(1, 50),
    per_seconds=st.integers(1, 120),
    burst=st.integers(1, 10),
    gaps=st.lists(st.integers(0, 5_000), min_size=1, max_size=120),
)
def test_no_window_holds_a_start_too_many(rate: int, per_seconds: int, burst: int, gaps: list[int]) -> None:
    """Whenever starts are asked for, any window holds at most the burst and what the rate allows in its length."""
    limit = Limit("k", rate=rate, per_seconds=per_seconds, burst=burst)
    moment, moments = NOW, []
    for gap in gaps:
        moment += timedelta(milliseconds=gap)
        moments.append(moment)
    found = starts(limit, moments)
    for first in range(len(found)):
        for last in range(first, len(found)):
            window = (found[last] - found[first]).total_seconds()
            assert last - first + 1 <= burst + window * rate / per_seconds + 1e-6


@given(rate=st.integers(1, 50), per_seconds=st.integers(1, 60), burst=st.integers(1, 10))
def test_an_eager_caller_gets_what_the_rate_gives(rate: int, per_seconds: int, burst: int) -> None:
    """Who starts each as soon as it is allowed is held up by the rounding to milliseconds alone."""
    limit = Limit("k", rate=rate, per_seconds=per_seconds, burst=burst)
    state, moment, count = None, NOW, burst + 100
    for _ in range(count):
        moment = moment if state is None else max(moment, state)
        assert limit.may_start(state, moment)
        state = limit.after_start(state, moment)
    ideal = (count - burst) * limit.interval
    assert ideal <= moment - NOW <= ideal + count * MILLISECOND


@given(rate=st.integers(1, 999), starts_before=st.integers(0, 5))
def test_times_are_whole_milliseconds_and_never_early(rate: int, starts_before: int) -> None:
    """What is stored in milliseconds is rounded up: cut off, it would allow each start a little too soon."""
    limit = Limit("k", rate=rate, per_seconds=1)
    state = None
    for _ in range(starts_before + 1):
        before = NOW if state is None else state
        state = limit.after_start(state, before)
        assert state.microsecond % 1_000 == 0
        assert state - before >= limit.interval
