"""Places as a policy advises them: in its order, up to its caps, and able to give what it requires."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.adapters import AdapterStatus, Limits
from fleet.domain.group import GroupStatus
from fleet.domain.lanes import satisfies
from fleet.domain.placement import AdapterState, StartGroup, Wish, placed
from fleet.domain.shrinking import Shrink, shrunk
from fleet.domain.snapshot import PoolWorker
from fleet.domain.supply import Supply
from tests.domain.test_placement import GPU, adapter
from tests.domain.test_plan import NOW as PLAN_NOW
from tests.domain.test_plan import a_group, a_worker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C = adapter("a", resizes=True), adapter("b", resizes=True, priority=9), adapter("c", resizes=True)
BIG = {"gpu": 4.0}


def launches(missing: int, wish: Wish, *adapters: AdapterState, most: int = 100) -> list[tuple[str, int]]:
    """Return who starts how many."""
    return [(start.adapter_id, start.size) for start in placed(missing, most, adapters, (), NOW, None, wish)[0]]


def codes(missing: int, wish: Wish, *adapters: AdapterState) -> list[str]:
    """Return why less is started than is missing."""
    return [reason.code for reason in placed(missing, 100, adapters, (), NOW, None, wish)[1]]


# Order and caps


def test_adapters_are_filled_in_the_order_of_the_advice() -> None:
    """The first up to its cap, whatever the priorities; who is not named gets nothing."""
    wish = Wish({"c": 2, "a": None})
    assert launches(5, wish, A, B, C) == [("c", 2), ("a", 3)]
    assert launches(5, Wish({"c": 2, "a": 1}), A, B, C) == [("c", 2), ("a", 1)]
    assert codes(5, Wish({"c": 2, "a": 1}), A, B, C) == ["no_room"]
    assert codes(5, Wish({"z": None}), A, B, C) == ["no_adapter"]


def test_a_cap_counts_those_that_are_there() -> None:
    """What an adapter carries already is part of its cap; one beyond its cap gets none."""
    assert launches(5, Wish({"a": 4, "b": None}, {"a": 3, "b": 9}), A, B) == [("a", 1), ("b", 4)]
    assert launches(5, Wish({"a": 4, "b": None}, {"a": 7}), A, B) == [("b", 5)]


def test_a_cap_is_not_broken_by_whole_groups() -> None:
    """Of groups of four a cap of seven holds one, and a cap of three none."""
    whole = adapter("w", workers_per_group=4)
    assert launches(6, Wish({"w": 7, "a": None}), whole, A) == [("w", 4), ("a", 2)]
    assert launches(3, Wish({"w": 3, "a": None}), whole, A) == [("a", 3)]
    assert launches(3, Wish({"w": 4, "a": None}), whole, A) == [("w", 4)]


def test_who_cannot_start_now_is_passed_over() -> None:
    """A paused, failing or full adapter leaves its part to those after it; others that are not asked are not named."""
    paused = AdapterState("p", status=AdapterStatus.PAUSED)
    failing = AdapterState("f", backoff_until=NOW + timedelta(seconds=1))
    full = adapter("z", max_worker_groups=1, groups=1)
    wish = Wish({"p": None, "f": None, "z": None, "a": None})
    assert launches(2, wish, A, paused, failing, full) == [("a", 2)]
    assert codes(2, Wish({"a": None}), A, paused, failing, full) == []


# What workers must offer


def test_who_cannot_offer_it_gets_nobody() -> None:
    """For a task that needs a GPU no worker without one is started, however free the place (LF01)."""
    able = adapter("g", resizes=True, base_capabilities=GPU)
    assert launches(3, Wish(requires=[GPU]), A, B, able) == [("g", 3)]
    assert launches(3, Wish(requires=[GPU]), A, B) == []
    _, [reason] = placed(3, 100, (A, B), (), NOW, None, Wish(requires=[{**GPU, "mem": 16}]))
    assert (reason.code, str(reason)) == (
        "no_capable_adapter",
        "no adapter can start workers that offer gpu=1, mem=16",
    )


def test_a_capable_adapter_without_room_is_no_missing_one() -> None:
    """Where a place could offer it and has no room, that is said, and nobody unable is started instead."""
    full = adapter("g", base_capabilities=GPU, max_worker_groups=1, groups=1)
    assert codes(2, Wish(requires=[GPU]), A, full) == ["adapter_full", "no_room"]


def test_each_requirement_has_its_own_number() -> None:
    """One entry for each of the first workers, the last one for all others; what is served by priority otherwise."""
    able = adapter("g", resizes=True, base_capabilities=GPU)
    assert launches(5, Wish(requires=[GPU, GPU, {}]), able, B) == [("b", 3), ("g", 2)]
    assert launches(1, Wish(requires=[GPU, {}]), able, B) == [("g", 1)]
    assert launches(4, Wish(requires=[{}, GPU]), able, B) == [("b", 1), ("g", 3)]
    assert launches(4, Wish(requires=[BIG, {}]), able, B) == [("b", 3)]


def test_what_a_place_gives_on_request_is_asked_for() -> None:
    """Only what is required beyond what template and place give by themselves, and only as much of it."""
    place = AdapterState("cloud", Limits(base_capabilities={"mem": 8}), on_request={"gpu": 4, "mem": 64})
    starts, reasons = placed(3, 100, (A, place), (), NOW, {"disk": 1}, Wish(requires=[{"gpu": 2, "mem": 8, "disk": 1}]))
    assert starts == (StartGroup("cloud", 3, {"gpu": 2}),)
    assert not reasons
    assert launches(1, Wish(requires=[{"gpu": 5}]), place) == []
    starts, _ = placed(2, 100, (place,), (), NOW, None, Wish(requires=[BIG, {}]))
    assert starts == (StartGroup("cloud", 1, BIG), StartGroup("cloud", 1, {}))


def test_launches_with_different_requests_share_the_room() -> None:
    """Groups for one request and for another are groups of one place."""
    place = AdapterState("cloud", Limits(2, 2), on_request=BIG)
    assert launches(9, Wish(requires=[BIG, {}]), place) == [("cloud", 1), ("cloud", 2)]
    only_one = AdapterState("cloud", Limits(1), on_request=BIG)
    assert launches(9, Wish(requires=[BIG, {}]), only_one) == [("cloud", 1)]
    capped = Wish({"cloud": 5}, requires=[BIG, BIG, {}])
    assert launches(9, capped, AdapterState("cloud", on_request=BIG)) == [("cloud", 2), ("cloud", 3)]


def test_who_comes_with_a_whole_group_is_not_ordered_again() -> None:
    """Of a group of four with one that needs a GPU, three take what needs none."""
    whole = adapter("g", workers_per_group=4, base_capabilities=GPU)
    assert launches(4, Wish(requires=[GPU, {}]), whole, B) == [("g", 4)]
    assert launches(6, Wish(requires=[GPU, {}]), whole, B) == [("b", 2), ("g", 4)]


@pytest.mark.parametrize(("base", "started"), [(None, True), ({}, False)])
def test_a_place_that_does_not_say_is_taken_at_its_last_word(base: dict[str, float] | None, started: bool) -> None:
    """Where nobody is here and a place does not say what it offers, the last workers' word counts."""
    place = AdapterState("a", Limits(base_capabilities=base))
    assert bool(launches(1, Wish(requires=[GPU], last_offers=[GPU]), place)) == started
    assert launches(1, Wish(requires=[GPU]), place) == []


# Shrinking


def supply_of(*workers: PoolWorker) -> Supply:
    """Return workers without groups."""
    return Supply([], {}, list(workers), [])


def gone(shrink: Shrink) -> list[str]:
    """Return who goes, in order."""
    return [drain.worker_id for drain in shrink.drains]


def at(place: str | None, name: str, **more: object) -> PoolWorker:
    """Return a worker that an adapter has started."""
    return replace(a_worker(name), adapter_id=place, **more)  # type: ignore[arg-type]


def test_the_last_adapter_shrinks_first_and_before_it_who_is_not_named() -> None:
    """Among idle workers, and then among busy ones; a busy one of the last adapter stays while an idle one goes."""
    workers = supply_of(
        at("a", "a-idle"),
        at("b", "b-busy", current_task_id=1),
        at("b", "b-idle"),
        at(None, "hand"),
        at("z", "z-busy", current_task_id=2),
        at("a", "a-busy", current_task_id=3),
    )
    order = [
        *("hand", "b-idle", "a-idle"),
        *("z-busy", "b-busy", "a-busy"),
    ]
    for number in range(7):
        assert gone(shrunk(workers, number, (), everybody=False, adapters=["a", "b"])) == order[:number]


def test_launches_of_the_last_adapter_are_withdrawn_first() -> None:
    """Launches go before workers, and of them first those of the adapter that is named last, however old."""
    groups = [
        replace(a_group(name, 2, GroupStatus.LAUNCHING, age), adapter_id=name) for name, age in (("a", 1), ("b", 50))
    ]
    supply = Supply(groups, {"a": [], "b": []}, [at("b", "idle")], [])
    for number, expected in ((2, ["b"]), (4, ["b", "a"])):
        shrink = shrunk(supply, number, (), everybody=False, adapters=["a", "b"])
        assert [cancel.group_id for cancel in shrink.cancels] == sorted(expected)
        assert not shrink.drains
    assert gone(shrunk(supply, 5, (), everybody=False, adapters=["a", "b"])) == ["idle"]


def test_who_has_been_idle_longest_goes_first() -> None:
    """Who ended a task a moment ago may be between two tasks, and goes last of the idle; of whom it is unknown goes
    after all of whom it is known (SC11)."""
    workers = supply_of(
        a_worker("unknown"),
        at(None, "moment", idle_since=PLAN_NOW - timedelta(seconds=1)),
        at(None, "long", idle_since=PLAN_NOW - timedelta(seconds=99)),
        at(None, "busy", current_task_id=1),
    )
    assert gone(shrunk(workers, 4, (), everybody=False)) == ["long", "moment", "unknown", "busy"]


# Properties

limits = st.builds(
    Limits, st.none() | st.integers(0, 4), st.none() | st.integers(1, 4), st.sampled_from([None, {}, GPU])
)
states = st.lists(
    st.builds(
        AdapterState,
        st.sampled_from("abcd"),
        limits,
        st.integers(0, 5),
        st.booleans(),
        st.integers(-1, 1),
        on_request=st.sampled_from([{}, BIG]),
    ),
    unique_by=lambda one: one.adapter_id,
)
wishes = st.builds(
    Wish,
    st.none() | st.dictionaries(st.sampled_from("abcz"), st.none() | st.integers(0, 9)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 6)),
    st.lists(st.sampled_from([{}, GPU, BIG, {"mem": 1.0}]), max_size=4),
)


@given(st.integers(0, 30), st.integers(1, 30), states, wishes)
def test_no_place_gets_what_it_may_not_have(missing: int, most: int, adapters: list[AdapterState], wish: Wish) -> None:
    """Nobody is started at an adapter that is not named, beyond its cap, its room, or what it can give; and if fewer
    come than may, a reason says so."""
    starts, reasons = placed(missing, most, adapters, (), NOW, None, wish)
    known = {one.adapter_id: one for one in adapters}
    for name in {start.adapter_id for start in starts}:
        one, own = known[name], [start for start in starts if start.adapter_id == name]
        assert wish.adapters is None or name in wish.adapters
        assert all(satisfies(one.on_request, start.capabilities) for start in own)
        assert one.room is None or len(own) <= one.room
        cap = None if wish.adapters is None else wish.adapters[name]
        assert cap is None or sum(start.size for start in own) + wish.carried.get(name, 0) <= cap
        if one.limits.workers_per_group is not None:
            assert all(0 < start.size <= one.limits.workers_per_group for start in own)
    goal = min(missing, most)
    if sum(start.size for start in starts) < goal:
        assert {reason.code for reason in reasons} & {"no_room", "no_adapter", "no_capable_adapter"}
    if wish.requires and not any(satisfies({}, one) for one in wish.requires):
        offers = [{**(known[s.adapter_id].limits.base_capabilities or {}), **s.capabilities} for s in starts]
        assert all(any(satisfies(offer, one) for one in wish.requires) for offer in offers)
