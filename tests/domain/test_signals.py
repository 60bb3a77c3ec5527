import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleet
from fleet.domain.durations import MAX_SECONDS
from fleet.domain.signals import Cancel, Fail, Retry, Signal, Snooze, Stopped
from fleet.errors import FleetError, UsageError


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0.0), (2, 2.0), (0.25, 0.25), (1e-5, 1e-5), ("30", 30.0), ("1500ms", 1.5), ("5m", 300.0), (" 2H ", 7200.0)],
)
def test_times_are_seconds_or_text(given: float | str, seconds: float) -> None:
    """Retry and Snooze take seconds, or text as everywhere else."""
    assert Retry(after=given).after == pytest.approx(seconds, abs=1e-6)
    assert Snooze(given).seconds == pytest.approx(seconds, abs=1e-6)


@given(st.floats(0, MAX_SECONDS))
def test_any_number_up_to_ten_years_is_taken(seconds: float) -> None:
    """Whatever number within ten years is given, the wait is that to the microsecond."""
    assert Snooze(seconds).seconds == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "given",
    [-1, -0.5, float("nan"), float("inf"), MAX_SECONDS + 1, "soon", "", "-5m", "1e3", True, [3], b"3", {}, 10**400],
    ids=lambda given: str(given)[:12],
)
def test_what_is_no_time_is_refused_by_name(given: Any) -> None:
    """A wait that makes no sense is a usage error that names the signal (RT07)."""
    with pytest.raises(UsageError, match=r"^Retry\(after=\.\.\.\): "):
        Retry(after=given)
    with pytest.raises(UsageError, match=r"^Snooze\(\.\.\.\): "):
        Snooze(given)


def test_a_snooze_needs_its_time() -> None:
    """A snooze without a time is refused: nobody would know when the task comes back."""
    with pytest.raises(UsageError):
        Snooze(None)  # type: ignore[arg-type]


def test_a_retry_without_a_time_leaves_it_to_the_policy() -> None:
    """A retry that names no time has none of its own."""
    assert Retry().after is None


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        (Retry(), "tried again"),
        (Retry("5m"), "tried again after 5m"),
        (Retry(3, "the service is down"), "the service is down"),
        (Snooze("2h"), "snoozed for 2h"),
        (Snooze(1, "not yet"), "not yet"),
        (Cancel(), "cancelled by its handler"),
        (Cancel("no such customer"), "no such customer"),
        (Fail(), "failed for good"),
        (Fail("the file is no picture"), "the file is no picture"),
        (Stopped(), "stopped as asked"),
    ],
)
def test_each_signal_says_why(signal: Signal, text: str) -> None:
    """Each signal's text is what its handler wrote, or says what becomes of the task."""
    assert str(signal) == text


@pytest.mark.parametrize("kind", [Retry, Snooze, Cancel, Fail, Stopped])
def test_signals_are_at_hand(kind: type[Signal]) -> None:
    """Handlers take their signals from `fleet` itself; none of them is one of its errors."""
    assert getattr(fleet, kind.__name__) is kind
    assert not issubclass(kind, FleetError)


@pytest.mark.parametrize("signal", [Cancel("why"), Fail("why"), Stopped("why")])
def test_a_signal_may_come_from_another_process(signal: Signal) -> None:
    """A signal that a process pool hands over is still the same one."""
    copy = pickle.loads(pickle.dumps(signal))
    assert type(copy) is type(signal)
    assert str(copy) == "why"
