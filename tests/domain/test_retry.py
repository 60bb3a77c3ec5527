import math
from collections.abc import Callable
from typing import Any

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.durations import MAX_SECONDS
from fleet.domain.retry import DEFAULT_RETRY, MAX_DELAYS, WAITS, RetryPolicy
from fleet.errors import UsageError

seconds = st.floats(0, MAX_SECONDS)
attempts = st.integers(-5, 10**12)
unit = st.floats(0, 1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    """Draw any policy that is accepted."""
    wait = draw(st.sampled_from(WAITS))
    least, middle, cap = sorted((draw(seconds), draw(seconds), draw(seconds)))
    return RetryPolicy(
        wait,
        multiplier=middle,
        max=cap,
        min=least,
        exp_base=draw(st.floats(1, 1_000)),
        start=draw(seconds),
        increment=draw(seconds),
        delays=tuple(draw(st.lists(seconds, min_size=1, max_size=5))) if wait == "chain" else (),
        jitter=draw(st.just(0.0) | seconds),
    )


def most(policy: RetryPolicy) -> float:
    """Return the longest wait that a policy can come to: a chain says itself how long."""
    return max((policy.max, *policy.delays)) if policy.wait == "chain" else policy.max


@given(policies(), attempts, unit)
def test_a_delay_is_finite_and_between_zero_and_the_cap(policy: RetryPolicy, attempt: int, drawn: float) -> None:
    """Whatever the attempt, the wait is a finite number between 0 and the cap (RT01)."""
    delay = policy.delay(attempt, lambda: drawn)
    assert math.isfinite(delay)
    assert 0 <= delay <= most(policy)
    assert policy.bound(attempt) <= most(policy)


@given(policies().filter(lambda policy: policy.wait != "chain"), st.integers(1, 5_000))
def test_the_bound_never_falls(policy: RetryPolicy, attempt: int) -> None:
    """A later attempt never has a shorter bound than an earlier one, but where each is written down."""
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
        | st.dictionaries(st.sampled_from(["wait", "multiplier", "max", "delays", "jitter", "x"]), inner, max_size=4)
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


# What the names promise: the arithmetic of tenacity's wait strategies

small = st.floats(0, 10_000)


@st.composite
def twins(draw: st.DrawFn) -> tuple[RetryPolicy, Callable[[Any], float]]:
    """Draw a policy without randomness, and the strategy of tenacity that it is named after."""
    least, middle, cap = sorted((draw(small), draw(small), draw(small)))
    wait = draw(st.sampled_from(["fixed", "exponential", "incrementing", "chain"]))
    if wait == "fixed":
        return RetryPolicy("fixed", middle, cap), tenacity.wait_fixed(middle)
    if wait == "exponential":
        base = draw(st.floats(1, 1_000))
        return (
            RetryPolicy("exponential", middle, cap, min=least, exp_base=base),
            tenacity.wait_exponential(multiplier=middle, max=cap, exp_base=base, min=least),
        )
    if wait == "incrementing":
        start, increment = draw(small), draw(small)
        return (
            RetryPolicy("incrementing", 0, cap, start=start, increment=increment),
            tenacity.wait_incrementing(start=start, increment=increment, max=cap),
        )
    delays = draw(st.lists(small, min_size=1, max_size=6))
    return RetryPolicy.of(delays), tenacity.wait_chain(*map(tenacity.wait_fixed, delays))


def state(attempt: int) -> tenacity.RetryCallState:
    """Return what a strategy of tenacity is asked with."""
    found = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    found.attempt_number = attempt
    return found


@given(twins())
def test_waits_are_those_of_tenacity(pair: tuple[RetryPolicy, Callable[[Any], float]]) -> None:
    """For each of the attempts 1 to 50 a strategy without randomness waits as long as its namesake."""
    policy, theirs = pair
    ours = [policy.delay(attempt, lambda: 0.5) for attempt in range(1, 51)]
    assert ours == pytest.approx([theirs(state(attempt)) for attempt in range(1, 51)])


@given(small, small, small, st.floats(1, 1_000), st.integers(1, 50), unit)
def test_random_waits_stay_in_tenacity_s_bounds(
    one: float, two: float, three: float, base: float, attempt: int, drawn: float
) -> None:
    """A random wait lies between the bounds between which its namesake draws, and reaches both."""
    least, middle, cap = sorted((one, two, three))
    policy = RetryPolicy("random_exponential", middle, cap, min=least, exp_base=base)
    high = tenacity.wait_exponential(multiplier=middle, max=cap, exp_base=base, min=least)(state(attempt))
    assert policy.delay(attempt, lambda: 0.0) == pytest.approx(least)
    assert policy.bound(attempt) == pytest.approx(high)
    assert least <= policy.delay(attempt, lambda: drawn) <= max(least, high) * (1 + 1e-9)


@given(small, small, st.floats(0, 100), st.integers(1, 50), unit)
def test_jitter_is_added_and_capped(one: float, two: float, jitter: float, attempt: int, drawn: float) -> None:
    """Jitter adds up to so much, and never more than the cap lets pass, as tenacity's wait_exponential_jitter does."""
    first, cap = sorted((one, two))
    policy = RetryPolicy("exponential", first, cap, jitter=jitter)
    without = RetryPolicy("exponential", first, cap).delay(attempt, lambda: drawn)
    assert policy.delay(attempt, lambda: drawn) == pytest.approx(min(cap, without + jitter * drawn))


def test_the_last_delay_of_a_chain_repeats() -> None:
    """A list of waits is taken one after the other, and then the last again and again."""
    policy = RetryPolicy.of(["1s", 10, "5m"])
    assert [policy.delay(attempt, lambda: 0.5) for attempt in (1, 2, 3, 4, 2_000)] == [1, 10, 300, 300, 300]


def test_policies_of_older_rows_are_read() -> None:
    """What the first release stored reads as it was meant."""
    assert RetryPolicy.from_json({"wait": "fixed", "multiplier": 7, "max": 600}) == RetryPolicy("fixed", 7)
    assert RetryPolicy.from_json({"wait": "exponential", "multiplier": 1.0, "max": 600.0}) == RetryPolicy("exponential")


def test_a_policy_is_made_of_what_people_write() -> None:
    """A policy, an object with durations as texts, and a list are taken for a policy; a long fixed wait is no error."""
    assert RetryPolicy.of(DEFAULT_RETRY) is DEFAULT_RETRY
    assert RetryPolicy.of({"wait": "exponential", "multiplier": "2s", "max": "1h"}) == RetryPolicy(
        "exponential", 2, 3600
    )
    assert RetryPolicy.of({"wait": "fixed", "multiplier": "2h"}).delay(1, lambda: 0.5) == 7200


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (7, TypeError),
        ("fixed", TypeError),
        (None, TypeError),
        ({"wait": "fixed", "pause": 1}, TypeError),
        ({"multiplier": "soon"}, UsageError),
        ({"multiplier": True}, TypeError),
        ([], UsageError),
        ([-1], UsageError),
        ([math.nan], UsageError),
        (["x"], UsageError),
        ([1] * (MAX_DELAYS + 1), UsageError),
        ({"wait": "chain"}, UsageError),
        ({"wait": "fixed", "delays": [1]}, UsageError),
        ({"exp_base": 0.5}, UsageError),
        ({"jitter": -1}, UsageError),
        ({"min": 10, "max": 5}, UsageError),
        ({"wait": "incrementing", "increment": -1}, UsageError),
    ],
)
def test_what_is_no_policy_is_refused(value: object, error: type[Exception]) -> None:
    """What makes no sense as a policy is an error, not a default."""
    with pytest.raises(error):
        RetryPolicy.of(value)
