from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.rank import rank

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PRIORITIES = st.integers(-1_000, 1_000)


@given(PRIORITIES, PRIORITIES, st.integers(0, 10**9))
def test_without_ageing_only_priority_counts(one: int, other: int, later: int) -> None:
    """However much later a task came, the higher priority goes first, and equal ones have equal ranks."""
    first, second = rank(one, NOW, 0), rank(other, NOW + timedelta(seconds=later), 0)
    assert (first < second) == (one > other)
    assert (first == second) == (one == other)


@pytest.mark.parametrize(("later_ms", "first"), [(1_199_999, "high"), (1_200_000, "tie"), (1_200_001, "low")])
def test_a_step_of_priority_is_worth_its_waiting(later_ms: int, first: str) -> None:
    """At 10 minutes a step, two steps are worth 20 minutes of waiting: not a millisecond less or more (CP04)."""
    low = rank(0, NOW, 600_000)
    high = rank(2, NOW + timedelta(milliseconds=later_ms), 600_000)
    assert {"high": high < low, "tie": high == low, "low": low < high}[first]


@given(PRIORITIES, st.integers(1, 10**8), st.integers(1, 10**9))
def test_with_ageing_the_older_of_two_alike_goes_first(priority: int, age_ms: int, later_ms: int) -> None:
    """Among equal priorities the order is that of arrival, to the millisecond."""
    assert rank(priority, NOW, age_ms) < rank(priority, NOW + timedelta(milliseconds=later_ms), age_ms)


def test_a_rank_is_exact() -> None:
    """A rank is a whole number of milliseconds: nothing is lost to floating point, years away from the epoch."""
    created = datetime(2026, 7, 8, 9, 10, 11, 123_000, tzinfo=UTC)
    assert rank(3, created, 1_000) == 1_783_501_811_123 - 3_000
