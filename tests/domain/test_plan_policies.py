"""What holds for plans of every registered policy, whatever its settings, clamps, places and past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.domain.adapters import Limits
from fleet.domain.bounds import bounds_at
from fleet.domain.demand import Offered, PastAdvice, PoolOffer, Work
from fleet.domain.group import GroupStatus
from fleet.domain.placement import AdapterState
from fleet.domain.plan import Plan, decide
from fleet.domain.policies import known_policies, policy
from fleet.domain.policies.in_force import in_force, table
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot
from fleet.domain.spare import with_spare
from fleet.errors import UsageError
from tests.domain.test_plan import NOW, a_group, a_running_group, a_snapshot, after

GPU = {"gpu": 1.0}
OWN: Mapping[str, tuple[object, ...]] = {
    "spare": (0, 3, "50%"),
    "schedule": (None, "min=2", "max=7", "thu 00:00-00:01 min=1 max=9; min=3"),
    "tiers": ("a:3, b", "b:2, a:2", "nowhere, a"),
    "primary": ("a", "b"),
    "secondary": ("b", "c"),
}
"""Settings that are read in a form of their own."""

FREE = [name for name in known_policies() if not {"tiers", "primary"} & set(table(name))]
"""Policies that leave places to room and priority."""


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """Return strategies of values within the bounds of a setting; None leaves it at its default."""
    if setting.kind is Kind.OWN:
        return st.sampled_from(OWN[setting.name])
    if setting.kind is Kind.CHOICE:
        return st.sampled_from(setting.choices)
    least, most = setting.least or 0, min(setting.most or 30, 30)
    number: st.SearchStrategy[Any] = st.integers(int(least + 1) if least % 1 else int(least), int(max(least + 1, most)))
    if setting.kind is not Kind.INTEGER:
        number = number | st.sampled_from([float(least), float(max(least, most))])
    return number if setting.required else st.none() | number


@st.composite
def given_to(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Return settings that a pool of this policy may have."""
    drawn = {each.name: draw(values_of(each)) for each in table(name).values()}
    try:
        in_force(name, drawn)
    except UsageError:
        assume(False)
    return drawn


places = st.lists(
    st.builds(
        AdapterState,
        st.sampled_from("abc"),
        st.builds(
            Limits, st.none() | st.integers(0, 6), st.none() | st.integers(1, 4), st.sampled_from([None, {}, GPU])
        ),
        resizes=st.booleans(),
        priority=st.integers(0, 1),
        on_request=st.sampled_from([{}, GPU]),
    ),
    unique_by=lambda one: one.adapter_id,
    max_size=3,
)
works = st.builds(
    Work,
    queue=st.just("default"),
    task=st.just("t"),
    requires=st.sampled_from([{}, GPU]),
    pending=st.integers(0, 60),
    running=st.integers(0, 5),
    seconds=st.none() | st.floats(0.01, 60),
)
advices = st.builds(
    lambda until, span, advised: PastAdvice(
        NOW - timedelta(seconds=until + span), NOW - timedelta(seconds=until), advised, advised, advised
    ),
    st.floats(0, 90),
    st.floats(0, 90),
    st.integers(0, 20),
)


@st.composite
def worlds(draw: st.DrawFn, name: str, *, endless: bool = False) -> Snapshot:
    """Return any pool of this policy; `endless`: with one place that takes whatever comes, and no limit for a pass."""
    groups, workers = [], list[PoolWorker]()
    for at in range(draw(st.integers(0, 4))):
        group, members = a_running_group(f"g{at}", draw(st.integers(1, 4)), draw(st.integers(0, 4)))
        if draw(st.booleans()):
            group, members = a_group(f"g{at}", group.target_size, GroupStatus.LAUNCHING), ()
        place = draw(st.sampled_from("abc")) if not endless else "a"
        groups.append(replace(group, adapter_id=place))
        workers += [
            replace(one, adapter_id=place, handlers=("t",), capabilities=draw(st.sampled_from([{}, GPU])))
            for one in members
        ]
    least = draw(st.integers(0, 4))
    wanted = PoolSettings(
        name,
        draw(given_to(name)),
        version=1,
        min_workers=least,
        max_workers=draw(st.none() | st.integers(least, 12)),
        max_launch_per_cycle=1000 if endless else draw(st.integers(1, 20)),
    )
    return replace(
        a_snapshot(wanted, tuple(groups), tuple(workers)),
        adapters=(AdapterState("a", on_request=GPU),) if endless else tuple(draw(places)),
        work=tuple(draw(st.lists(works, max_size=3))),
        pools=(PoolOffer("default", len(workers), (Offered(frozenset({"t"}), (), draw(st.sampled_from([{}, GPU]))),)),),
        pace_window=60.0,
        advices=tuple(sorted(draw(st.lists(advices, max_size=3)), key=lambda one: one.since)),
        last_scale_up_at=draw(st.none() | st.floats(0, 40).map(lambda ago: NOW - timedelta(seconds=ago))),
        last_scale_down_at=draw(st.none() | st.floats(0, 40).map(lambda ago: NOW - timedelta(seconds=ago))),
    )


def taken(world: Snapshot, plan: Plan) -> int:
    """Return how many workers the plan takes away: those whose places go, and those that stand for themselves."""
    lowered = sum(resize.before - resize.after for resize in plan.resizes) + sum(one.size for one in plan.cancels)
    return lowered + sum(drain.group_id is None for drain in plan.drains)


@pytest.mark.parametrize("name", known_policies())
@settings(deadline=None)
@given(data=st.data())
def test_no_plan_exceeds_a_clamp(name: str, data: st.DataObject) -> None:
    """Whatever is advised: the number lies within minimum and maximum of the time of day, nothing is started and taken
    away in one plan, no more is started than is missing (but for groups that come whole) or allowed, no adapter gets
    more than it has room for, and no more goes than is too many (SC07, SC21)."""
    world = data.draw(worlds(name))
    plan = decide(world)
    values = in_force(name, world.settings.settings)
    bounds = bounds_at(NOW, world.settings.min_workers, world.settings.max_workers, values["schedule"])
    assert plan.desired >= bounds.least
    assert bounds.most is None or plan.desired <= bounds.most
    assert not (plan.starts and (plan.resizes or plan.cancels or plan.drains))
    wanted = min(max(0, plan.desired - plan.supply), world.settings.max_launch_per_cycle)
    stiff = {one.adapter_id for one in world.adapters if not one.resizes}
    assert sum(one.size for one in plan.starts if one.adapter_id not in stiff) <= wanted
    groups = Counter(one.adapter_id for one in plan.starts)
    assert all(one.room is None or groups[one.adapter_id] <= one.room for one in world.adapters)
    assert taken(world, plan) <= max(0, plan.supply - plan.desired)


@pytest.mark.parametrize("name", FREE)
@settings(deadline=None)
@given(data=st.data())
def test_where_there_is_room_a_pass_arrives(name: str, data: st.DataObject) -> None:
    """With one place that takes whatever comes, supply, starts and what goes make up the desired number."""
    world = data.draw(worlds(name, endless=True))
    plan = decide(world)
    assert plan.supply + sum(one.size for one in plan.starts) - taken(world, plan) == plan.desired
    assert decide(after(world, plan)).supply == plan.desired


@pytest.mark.parametrize("name", [name for name in known_policies() if not policy(name).is_elastic])
@settings(deadline=None)
@given(data=st.data())
def test_a_second_pass_does_nothing(name: str, data: st.DataObject) -> None:
    """On a world that is as it was decided, a second pass decides nothing (SC08)."""
    world = data.draw(worlds(name, endless=True))
    assert decide(after(world, decide(world))).is_empty


@pytest.mark.parametrize("name", known_policies())
@settings(deadline=None)
@given(data=st.data())
def test_what_a_person_bounds_takes_effect_in_one_pass(name: str, data: st.DataObject) -> None:
    """A pool is brought within its minimum and maximum at once, whatever cooldown or window holds otherwise."""
    world = data.draw(worlds(name, endless=True))
    number = data.draw(st.integers(0, 12))
    told = {**world.settings.settings, "schedule": None}
    exact = replace(world.settings, min_workers=number, max_workers=number, settings=told)
    plan = decide(replace(world, settings=exact))
    assert plan.desired == number


@pytest.mark.parametrize("name", [name for name in FREE if policy(name).is_elastic])
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_spare_capacity_is_added_once(name: str, data: st.DataObject) -> None:
    """On work that stays, passes come to rest with the spare capacity on top, and add it to nothing but the advice:
    not again to workers that they started as spare ones."""
    spare = data.draw(st.integers(1, 4) | st.sampled_from(["50%"]))
    told = {"spare": spare, "stabilization_window": 0}
    tasks = [replace(one, pending=min(one.pending, 12)) for one in data.draw(st.lists(works, max_size=2))]
    offered = (PoolOffer("default", 0, (Offered(frozenset({"t"}), (), GPU),)),)
    world = replace(
        a_snapshot(PoolSettings(name, told, version=1)),
        adapters=(AdapterState("a", Limits(base_capabilities=GPU)),),
        work=tuple(tasks),
        pools=offered,
    )
    numbers = []
    for _ in range(60):
        plan = decide(world)
        if plan.is_empty:
            break
        world = after(world, plan)
        numbers.append(plan.desired)
    assert decide(world).is_empty
    assert numbers == sorted(numbers)
    assert plan.desired == plan.supply == with_spare(plan.advised, spare)
    if not tasks:
        assert plan.supply == with_spare(0, spare)


@pytest.mark.parametrize(
    ("name", "own"),
    [("waterfall", {"tiers": "a:1, b"}), ("fixed_elastic", {"primary": "a", "primary_limit": 1, "secondary": "b"})],
)
def test_spare_workers_of_tiers_find_their_places(name: str, own: Mapping[str, Any]) -> None:
    """Spare capacity is started where the tiers have places for it, and a second pass does nothing."""
    world = replace(
        a_snapshot(PoolSettings(name, {**own, "spare": 2}, version=1)),
        adapters=(AdapterState("a"), AdapterState("b")),
        work=(Work("default", "t", {}, pending=15),),
        pools=(PoolOffer("default", 0, (Offered(frozenset({"t"})),)),),
    )
    plan = decide(world)
    assert [(one.adapter_id, one.size) for one in plan.starts] == [("a", 1), ("b", 3)]
    assert decide(after(world, plan)).is_empty
