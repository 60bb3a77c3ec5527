import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.durations import MAX_SECONDS
from fleet.domain.retry import DEFAULT_RETRY, RetryPolicy
from fleet.errors import UsageError

WAITS = ("random_exponential", "exponential", "fixed")
waits = st.sampled_from(WAITS)
seconds = st.floats(0, MAX_SECONDS)
attempts = st.integers(-5, 10**12)
unit = st.floats(0, 1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    """Draw any policy that is accepted."""
    low, high = sorted((draw(seconds), draw(seconds)))
    return RetryPolicy(draw(waits), low, high)


@given(policies(), attempts, unit)
def test_a_delay_is_finite_and_between_zero_and_the_cap(policy: RetryPolicy, attempt: int, drawn: float) -> None:
    """Whatever the attempt, the wait is a finite number between 0 and the cap (RT01)."""
    delay = policy.delay(attempt, lambda: drawn)
    assert math.isfinite(delay)
    assert 0 <= delay <= policy.bound(attempt) <= policy.max


@given(policies(), st.integers(1, 5_000))
def test_the_bound_never_falls(policy: RetryPolicy, attempt: int) -> None:
    """A later attempt never has a shorter bound than an earlier one."""
    assert policy.bound(attempt) <= policy.bound(attempt + 1)


@pytest.mark.parametrize("attempt", [64, 65, 1_023, 1_024, 2_000, 10**9])
def test_attempt_2000_waits_for_the_cap(attempt: int) -> None:
    """The exponent is clamped: attempt 2000 waits as long as the cap says (RT01)."""
    assert RetryPolicy("exponential").delay(attempt, lambda: 0.5) == 600.0


def test_the_default_doubles_from_one_second_to_ten_minutes() -> None:
    """The default bounds are 1 s, 2 s, 4 s ... and never more than 10 minutes."""
    assert [DEFAULT_RETRY.bound(attempt) for attempt in (1, 2, 3, 10, 11)] == [1, 2, 4, 512, 600]


def test_jitter_is_full() -> None:
    """The default wait is drawn from the whole span between 0 and the bound."""
    assert DEFAULT_RETRY.delay(4, lambda: 0.0) == 0.0
    assert DEFAULT_RETRY.delay(4, lambda: 0.25) == 2.0


def test_fixed_waits_the_same_each_time() -> None:
    """A fixed wait is its multiplier after every attempt and draws nothing."""
    policy = RetryPolicy("fixed", multiplier=7)
    assert {policy.delay(attempt, lambda: 0.9) for attempt in (1, 2, 50)} == {7}


@given(policies())
def test_a_policy_survives_its_json(policy: RetryPolicy) -> None:
    """What is stored in `retry_json` reads back as the same policy."""
    assert RetryPolicy.from_json(policy.as_json()) == policy


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["wait", "multiplier", "max", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(json_values)
def test_unreadable_retry_json_gives_a_usable_policy(value: object) -> None:
    """Whatever a row holds in `retry_json`, the delay after it is a finite number within the policy's cap (RT07)."""
    policy = RetryPolicy.from_json(value)
    delay = policy.delay(2_000, lambda: 0.5)
    assert math.isfinite(delay)
    assert 0 <= delay <= policy.max


@pytest.mark.parametrize(
    ("wait", "multiplier", "cap"),
    [
        ("linear", 1, 10),
        ("fixed", -1, 10),
        ("fixed", 11, 10),
        ("exponential", math.nan, 10),
        ("exponential", 1, math.nan),
        ("exponential", 1, math.inf),
        ("exponential", 1, MAX_SECONDS + 1),
        ("exponential", math.inf, math.inf),
    ],
)
def test_senseless_policies_are_refused(wait: str, multiplier: float, cap: float) -> None:
    """An unknown wait, a negative, infinite or inverted span is a usage error."""
    with pytest.raises(UsageError):
        RetryPolicy(wait, multiplier, cap)  # type: ignore[arg-type]
