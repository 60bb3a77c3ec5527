"""Clamps: what bounds every policy's advice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.bounds import Bounds
from fleet.domain.clamps import DAY, SETTINGS, Past, clamped, reach
from fleet.domain.demand import PastAdvice
from fleet.domain.spare import read_spare, with_spare, without_spare
from fleet.errors import UsageError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_BOUNDS = Bounds(0, None)
NO_PAST = Past()
MOMENT = 0.001


def settings(**given: object) -> Mapping[str, Any]:
    """Return settings of clamps, complete: by default nothing holds anything."""
    off = {"stabilization_window": 0}
    values = {each.name: each.default for each in SETTINGS} | off
    return values | {each.name: each.value(given[each.name]) for each in SETTINGS if each.name in given}


def ago(seconds: float) -> datetime:
    """Return the moment that long before NOW."""
    return NOW - timedelta(seconds=seconds)


def advice(since: float, until: float, advised: int) -> PastAdvice:
    """Return a row of the ledger, from and to so many seconds ago."""
    return PastAdvice(ago(since), ago(until), advised, advised, advised)


def number(
    advised: int, supply: int, past: Past = NO_PAST, bounds: Bounds = NO_BOUNDS, **given: object
) -> tuple[int, list[str]]:
    """Return the number of an elastic policy after the clamps, and the codes of what changed it."""
    held, reasons = clamped(advised, supply, bounds, settings(**given), past, NOW, elastic=True)
    return held, [reason.code for reason in reasons]


def test_nothing_is_said_where_nothing_is_changed() -> None:
    """An advice within all clamps is kept, without a reason."""
    past = Past((advice(50, 10, 3),), ago(100), ago(100))
    given = {"scale_up_cooldown": 60, "scale_down_cooldown": 60, "stabilization_window": 60}
    assert number(5, 3, past, Bounds(0, 9), **given) == (5, [])
    assert number(3, 5, past, Bounds(0, 9), **given) == (3, [])
    assert number(3, 3, past, Bounds(3, 3), **given) == (3, [])


@pytest.mark.parametrize(("spare", "expected"), [(2, 7), ("2", 7), (0, 5), ("10%", 6), ("100%", 10), ("0%", 5)])
def test_spare_capacity_is_on_top_of_what_the_work_needs(spare: object, expected: int) -> None:
    """A number of workers, or a share of them, rounded up."""
    assert number(5, 5, spare=spare)[0] == expected


def test_spare_capacity_stays_within_minimum_and_maximum() -> None:
    """It counts towards the minimum, and ends at the maximum."""
    assert number(0, 0, spare=2) == (2, ["spare"])
    assert number(1, 0, bounds=Bounds(4, None), spare=2) == (4, ["spare", "raised_to_minimum"])
    assert number(5, 0, bounds=Bounds(0, 6), spare=2) == (6, ["spare", "lowered_to_maximum"])
    assert number(0, 0, spare="50%") == (0, [])


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "1/2", "10 %%", "-5%", "1001%", True, None, [], "nan", "inf", 1e9])
def test_a_spare_that_cannot_be_is_refused(wrong: object) -> None:
    """Neither a number of workers nor a share of them."""
    with pytest.raises(UsageError, match="give a whole number of workers"):
        read_spare(wrong)


@given(st.integers(0, 100_000), st.integers(0, 50) | st.integers(0, 1_000).map(lambda share: f"{share}%"))
def test_what_is_there_for_the_work_and_its_spare_are_what_is_there(supply: int, spare: int | str) -> None:
    """The supply without its spare is the most that, with its spare, is no more than the supply."""
    needed = without_spare(supply, spare)
    assert needed == 0 or with_spare(needed, spare) <= supply
    assert with_spare(needed + 1, spare) > supply
    assert without_spare(with_spare(needed, spare), spare) == needed


def test_a_rule_of_the_schedule_is_named() -> None:
    """Where minimum and maximum are those of a time of day, the reason says which."""
    _, reasons = clamped(9, 0, Bounds(0, 4, "sat max=4"), settings(), Past(), NOW, elastic=False)
    assert [str(reason) for reason in reasons] == ["lowered from 9 to the maximum of 4 (schedule: sat max=4)"]


# Time


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [(0, (4, ["scale_up_cooldown"])), (30 - MOMENT, (4, ["scale_up_cooldown"])), (30, (9, [])), (30 + MOMENT, (9, []))],
)
def test_no_more_are_started_before_the_cooldown_is_over(elapsed: float, expected: object) -> None:
    """Just before, at and after the end of the cooldown since workers were last started; the other direction is free
    ."""
    past = Past(scaled_up_at=ago(elapsed))
    assert number(9, 4, past, scale_up_cooldown=30) == expected
    assert number(2, 4, past, scale_up_cooldown=30) == (2, [])


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [
        (0, (4, ["scale_down_cooldown"])),
        (30 - MOMENT, (4, ["scale_down_cooldown"])),
        (30, (2, [])),
        (30 + MOMENT, (2, [])),
    ],
)
def test_no_more_are_taken_away_before_the_cooldown_is_over(elapsed: float, expected: object) -> None:
    """Just before, at and after the end of the cooldown since workers were last taken away; growing is free."""
    past = Past(scaled_down_at=ago(elapsed))
    assert number(2, 4, past, scale_down_cooldown=30) == expected
    assert number(9, 4, past, scale_down_cooldown=30) == (9, [])


@pytest.mark.parametrize(
    ("until", "expected"),
    [(0, 8), (60 - MOMENT, 8), (60, 2), (60 + MOMENT, 2)],
)
def test_workers_go_only_down_to_the_most_that_was_advised_lately(until: float, expected: int) -> None:
    """Just before, at and after the end of the window since so many were last advised (SC05)."""
    past = Past((advice(200, until, 8), advice(20, 0, 2)))
    assert number(2, 10, past, stabilization_window=60)[0] == expected


def test_the_window_holds_nobody_that_is_not_there() -> None:
    """It never makes a pool grow: what was advised and never came is not missed."""
    assert number(2, 4, Past((advice(10, 0, 9),)), stabilization_window=60) == (4, ["stabilization_window"])
    assert number(4, 4, Past((advice(10, 0, 9),)), stabilization_window=60) == (4, [])


def test_the_window_counts_the_spare_capacity_of_then() -> None:
    """What was advised earlier had its spare capacity too."""
    assert number(2, 10, Past((advice(10, 0, 5),)), spare=2, stabilization_window=60) == (
        7,
        ["spare", "stabilization_window"],
    )


def test_minimum_and_maximum_take_effect_at_once() -> None:
    """Neither cooldown nor window holds a pool above its maximum or below its minimum."""
    past = Past((advice(10, 0, 9),), ago(1), ago(1))
    given = {"scale_up_cooldown": 60, "scale_down_cooldown": 60, "stabilization_window": 60}
    assert number(9, 9, past, Bounds(0, 3), **given)[0] == 3
    assert number(0, 0, past, Bounds(5, None), **given)[0] == 5
    assert number(9, 0, past, Bounds(5, None), **given)[0] == 5
    assert number(0, 9, past, Bounds(0, 3), **given)[0] == 3


def test_what_a_person_said_is_neither_held_nor_supplemented() -> None:
    """Policies that do not follow the work know minimum and maximum only."""
    past = Past((advice(10, 0, 9),), ago(1), ago(1))
    held = settings(scale_up_cooldown=60, scale_down_cooldown=60, stabilization_window=60, spare=3)
    assert clamped(2, 9, NO_BOUNDS, held, past, NOW, elastic=False) == (2, [])
    assert clamped(9, 2, NO_BOUNDS, held, past, NOW, elastic=False) == (9, [])


def test_a_clock_that_was_set_back_holds_nothing() -> None:
    """Times in the future were written before the clock was set back; nobody waits until they come (CK04)."""
    past = Past((advice(-100, -200, 9),), ago(-100), ago(-100))
    given = {"scale_up_cooldown": 60, "scale_down_cooldown": 60, "stabilization_window": 60}
    assert number(2, 9, past, **given) == (2, [])
    assert number(9, 2, past, **given) == (9, [])


def test_reasons_say_nothing_that_changes_by_itself() -> None:
    """While a clamp holds, its reason stays word for word, so that the ledger has one row for it."""
    texts = set()
    for later in (0, 5, 9):
        held = settings(scale_up_cooldown=30)
        _, reasons = clamped(
            9, 4, NO_BOUNDS, held, Past(scaled_up_at=NOW), NOW + timedelta(seconds=later), elastic=True
        )
        texts.add(str(reasons[0]))
    assert texts == {"held at 4 instead of 9 until 12:00:30Z (scale_up_cooldown)"}


def test_the_ledger_is_read_as_far_as_the_window_reaches() -> None:
    """Nobody reads more of the ledger than the clamps look at."""
    assert reach(settings()) == 0
    assert reach(settings(stabilization_window="5m")) == 300
    assert reach({each.name: each.default for each in SETTINGS}) == 60
    assert reach({"stabilization_window": 10 * DAY}) == DAY


times = st.none() | st.floats(-100, 200).map(ago)
pasts = st.builds(
    Past,
    st.lists(
        st.tuples(st.floats(-50, 200), st.floats(0, 100), st.integers(0, 20)).map(
            lambda drawn: advice(drawn[0] + drawn[1], drawn[0], drawn[2])
        ),
        max_size=5,
    ),
    times,
    times,
)


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    pasts,
    st.integers(0, 10),
    st.none() | st.integers(10, 20),
    st.integers(0, 5) | st.just("50%"),
    *(st.sampled_from([0, 30, 90]) for _ in range(3)),
)
def test_clamps_hold_whatever_is_advised(
    advised: int,
    supply: int,
    past: Past,
    least: int,
    most: int | None,
    spare: int | str,
    up: int,
    down: int,
    window: int,
) -> None:
    """The number lies within minimum and maximum, and no clamp of time moves it past the present one, or away from
    it; a reason stands for each step that changed it, and for no other."""
    held = settings(spare=spare, scale_up_cooldown=up, scale_down_cooldown=down, stabilization_window=window)
    bounds = Bounds(least, most)
    result, reasons = clamped(advised, supply, bounds, held, past, NOW, elastic=True)
    free, _ = clamped(advised, supply, bounds, settings(spare=spare), Past(), NOW, elastic=True)
    present = max(least, supply if most is None else min(supply, most))
    assert least <= result <= (100 if most is None else most)
    assert min(free, present) <= result <= max(free, present)
    times = {"scale_up_cooldown", "scale_down_cooldown", "stabilization_window"}
    assert bool(times & {reason.code for reason in reasons}) == (result != free)
    assert len({reason.code for reason in reasons}) == len(reasons)
