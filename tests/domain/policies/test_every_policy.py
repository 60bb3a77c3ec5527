"""What holds for every policy that is registered, whatever it counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.demand import Work
from fleet.domain.policies import Situation, known_policies, policy
from fleet.domain.policies.situation import Crew
from tests.domain.policies.situations import adapter, ago, crew, situation, worker

ELASTIC = [name for name in known_policies() if policy(name).is_elastic]
SETTLED_AFTER = 130
"""Passes within which every policy comes to rest, on demand of the size that is drawn here; the stepwise one takes as
many as it has steps to go."""

REQUIRES = ({}, {"gpu": 1.0}, {"mem": 16.0}, {"gpu": 1.0, "mem": 8.0})
OFFERS = ({}, {"gpu": 1.0}, {"mem": 32.0}, {"gpu": 1.0, "mem": 32.0})
ADAPTERS = (adapter("a", base=OFFERS[0]), adapter("b", base=OFFERS[3]), adapter("c", room=0))


def works(most: int = 200) -> st.SearchStrategy[Work]:
    """Return strategies of open tasks."""
    return st.builds(
        Work,
        queue=st.just("default"),
        task=st.just("t"),
        requires=st.sampled_from(REQUIRES),
        pending=st.integers(0, most),
        running=st.integers(0, 20),
        seconds=st.one_of(st.none(), st.floats(0, 1000)),
        busy=st.floats(0, 600),
        arrivals=st.integers(0, 1000),
        longest_running=st.floats(0, 1000),
    )


crews = st.lists(
    st.builds(
        lambda offer, here, coming: crew(here, coming, **offer),
        st.sampled_from(OFFERS),
        st.integers(0, 8),
        st.integers(0, 8),
    ),
    max_size=3,
)


@st.composite
def situations(draw: st.DrawFn, name: str) -> Situation:
    """Draw a pool with workers of several capabilities, tasks of several kinds, and adapters of several states."""
    present: list[Crew] = draw(crews)
    supply = sum(each.size for each in present) + draw(st.integers(0, 3))
    found = situation(name, supply, *draw(st.lists(works(), max_size=4)))
    return replace(
        found,
        crews=tuple(present),
        workers=tuple(
            worker(
                f"w{at}", draw(st.sampled_from([None, 10, 100])), cpu_percent=draw(st.sampled_from([None, 5.0, 99.0]))
            )
            for at in range(sum(each.here for each in present))
        ),
        offers=tuple(each.takes for each in present if each.takes is not None),
        adapters=draw(st.sampled_from([ADAPTERS, ADAPTERS[:1], ()])),
        sizes={"a": draw(st.integers(0, supply))},
        max_workers=draw(st.sampled_from([None, 1, 5, 50])),
        pace_window=60.0,
        slots=draw(st.sampled_from([1.0, 1.5, 4.0])),
        last_cycle_at=draw(st.sampled_from([None, ago(1), ago(60)])),
        last_scale_up_at=draw(st.sampled_from([None, ago(5), ago(500)])),
        last_scale_down_at=draw(st.sampled_from([None, ago(5), ago(500)])),
    )


def number(name: str, found: Situation) -> int:
    """Return what the policy advises."""
    return policy(name).advise(found).workers


def test_all_policies_are_registered() -> None:
    """There are the policies that the documentation promises, each with a line that says what it does."""
    promised = {"no", "fixed", "vanilla", "capability", "fixed_elastic", "waterfall", "threshold", "drain_time"}
    assert promised <= set(known_policies())
    assert all(policy(name).help for name in known_policies())


@pytest.mark.parametrize("name", known_policies())
@given(data=st.data())
def test_a_whole_number_that_is_not_negative(name: str, data: st.DataObject) -> None:
    """Every policy advises a whole number of workers, never a negative one, with a reason in one line."""
    advice = policy(name).advise(data.draw(situations(name)))
    assert isinstance(advice.workers, int)
    assert advice.workers >= 0
    assert advice.reason.code.replace("_", "").isalpha()
    assert advice.reason.text
    assert "\n" not in advice.reason.text


@pytest.mark.parametrize("name", known_policies())
@given(data=st.data())
def test_one_situation_gives_one_number(name: str, data: st.DataObject) -> None:
    """A policy keeps nothing between two calls: the same situation gives the same advice."""
    found = data.draw(situations(name))
    assert policy(name).advise(found) == policy(name).advise(found)


@pytest.mark.parametrize("name", ELASTIC)
@given(data=st.data())
def test_more_demand_never_asks_for_fewer(name: str, data: st.DataObject) -> None:
    """With more tasks of one kind waiting, and all else alike, no policy advises fewer workers (SC06)."""
    found = data.draw(situations(name))
    if not found.demand:
        found = replace(found, demand=(Work("default", "t"),))
    more = replace(found.demand[0], pending=found.demand[0].pending + data.draw(st.integers(1, 300)))
    assert number(name, replace(found, demand=(more, *found.demand[1:]))) >= number(name, found)


@pytest.mark.parametrize("name", ELASTIC)
@given(data=st.data())
def test_what_runs_is_never_taken_away(name: str, data: st.DataObject) -> None:
    """There are at least as many workers as running tasks need (SC06, SC15)."""
    found = data.draw(situations(name))
    assert number(name, found) * found.slots >= sum(work.running for work in found.demand) - 1e-6


@pytest.mark.parametrize("name", ELASTIC)
@given(data=st.data())
def test_tasks_without_anybody_start_somebody(name: str, data: st.DataObject) -> None:
    """From zero, work that waits is work for at least one worker."""
    found = data.draw(situations(name))
    empty = replace(found, supply=0, crews=(), workers=(), sizes={}, max_workers=None, adapters=ADAPTERS)
    pending = sum(work.pending for work in found.demand)
    assert (number(name, empty) > 0) == bool(found.outstanding) or not pending


@pytest.mark.parametrize("name", ELASTIC)
@given(data=st.data())
def test_nothing_to_do_asks_for_no_more(name: str, data: st.DataObject) -> None:
    """Without a task no policy starts anybody."""
    found = data.draw(situations(name))
    assert number(name, replace(found, demand=())) <= found.supply


IDLE = tuple(worker(f"w{at}", 1000) for at in range(400))
"""Workers that wait for work, whatever waits: they could be given back at any time."""


def settled(name: str, found: Situation) -> list[int]:
    """Return the numbers of passes over demand that stays as it is, each obeyed at once and to the letter."""
    numbers = [found.supply]
    while len(numbers) < SETTLED_AFTER:
        wanted = number(name, replace(found, workers=IDLE[: found.supply], sizes={"a": found.supply}))
        wanted = wanted if found.max_workers is None else min(wanted, found.max_workers)
        numbers.append(wanted)
        if wanted == found.supply:
            return numbers
        found = replace(found, supply=wanted)
    raise AssertionError(f"{name} does not settle: {numbers[-10:]}")


@pytest.mark.parametrize("name", ELASTIC)
@given(data=st.data())
def test_constant_load_comes_to_rest(name: str, data: st.DataObject) -> None:
    """On demand that stays, the number goes one way, settles within a bounded number of passes, and stays
    (SC08)."""
    tasks = tuple(replace(one, requires={}) for one in data.draw(st.lists(works(15), max_size=3)))
    found = situation(name, data.draw(st.integers(0, 60)), *tasks, given={}, pace_window=60.0)
    found = replace(
        found, slots=data.draw(st.sampled_from([1.0, 4.0])), max_workers=data.draw(st.sampled_from([None, 5]))
    )
    numbers = settled(name, replace(found, adapters=(adapter("a"),)))
    steps = [after - before for before, after in pairwise(numbers) if after != before]
    assert all(step > 0 for step in steps) or all(step < 0 for step in steps)
