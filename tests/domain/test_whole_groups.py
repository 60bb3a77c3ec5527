"""Groups of places that cannot make one smaller: they come whole, and go whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.adapters import Limits
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.lanes import Lane
from fleet.domain.placement import AdapterState
from fleet.domain.plan import CancelGroup, Plan, ResizeGroup, StartGroup, decide
from fleet.domain.snapshot import PoolWorker, Snapshot
from tests.domain.test_plan import NATIVE, a_group, a_running_group, a_snapshot, after, fixed

STIFF = AdapterState(NATIVE, Limits(workers_per_group=4), resizes=False)


def planned(target: int, *groups: tuple[GroupRecord, tuple[PoolWorker, ...]], **more: object) -> Plan:
    """Return the plan for these groups of fixed size."""
    workers = tuple(worker for _, members in groups for worker in members)
    world = a_snapshot(fixed(target), tuple(group for group, _ in groups), workers, adapter=STIFF)
    return decide(replace(world, **more))  # type: ignore[arg-type]


def test_what_was_rounded_up_stays() -> None:
    """Five workers are two groups of four; the pass after it takes nothing away, and says why."""
    plan = decide(a_snapshot(fixed(5), adapter=STIFF))
    assert plan.starts == (StartGroup(NATIVE, 4), StartGroup(NATIVE, 4))
    plan = planned(5, a_running_group("a", 4), a_running_group("b", 4))
    assert plan.is_empty
    assert plan.reasons[-1].text == "3 more than desired: their groups come and go whole"


def test_nobody_leaves_a_whole_group_alone() -> None:
    """Where one of four is busy and one is wanted, the three idle ones stay: what they stand on is paid for as long as
    the fourth works, and nobody is started beside them (SC26)."""
    for target in (1, 2, 3, 4):
        assert planned(target, a_running_group("a", 4, busy=1)).is_empty


def test_a_group_goes_when_all_of_it_is_surplus() -> None:
    """An idle group goes before one in which somebody is busy; all its workers are drained with it (SC26)."""
    plan = planned(4, a_running_group("a", 4, busy=1), a_running_group("b", 4))
    assert plan.resizes == (ResizeGroup("b", 4, 0),)
    assert sorted(worker.worker_id for worker in plan.drains) == ["b-0", "b-1", "b-2", "b-3"]
    assert planned(0, a_running_group("a", 4, busy=1)).resizes == (ResizeGroup("a", 4, 0),)


def test_a_launch_is_withdrawn_whole() -> None:
    """A group that has not come up is withdrawn if all of it is surplus, and else awaited."""
    launching = a_group("new", 4, GroupStatus.LAUNCHING), ()
    assert planned(4, a_running_group("a", 4), launching).cancels == (CancelGroup("new", 4),)
    assert planned(5, a_running_group("a", 4), launching).is_empty
    half = a_group("half", 4), a_running_group("half", 2)[1]
    assert planned(6, a_running_group("a", 4), half).is_empty
    assert planned(4, a_running_group("a", 4, busy=1), half).resizes == (ResizeGroup("half", 4, 0),)


def test_a_group_that_alone_serves_what_waits_stays() -> None:
    """Of two idle groups the one goes whose workers are not needed."""
    able, idle = a_running_group("a", 4), a_running_group("b", 4)
    able = able[0], tuple(replace(worker, handlers=("t",)) for worker in able[1])
    for groups in ((able, idle), (idle, able)):
        plan = planned(4, *groups, wanted=(Lane(1, "q", "t", {}),))
        assert plan.resizes == (ResizeGroup("b", 4, 0),)


def test_workers_that_go_one_by_one_make_up_for_it() -> None:
    """Where a place with whole groups and one without are used, the surplus that is left goes from the latter."""
    whole, loose = a_running_group("a", 4), a_running_group("b", 3)
    own = replace(loose[0], adapter_id="native:other"), loose[1]
    world = a_snapshot(fixed(5), (whole[0], own[0]), (*whole[1], *own[1]), adapter=STIFF)
    plan = decide(replace(world, adapters=(STIFF, AdapterState("native:other"))))
    assert plan.resizes == (ResizeGroup("b", 3, 1),)
    assert not any("whole" in reason.text for reason in plan.reasons)


@pytest.mark.parametrize(("offered", "first"), [({}, "able"), ({"gpu": 1}, "plain")])
def test_what_the_template_offers_needs_no_place_for_it(offered: dict[str, float], first: str) -> None:
    """Where the pool's own workers bring what waits for it, the place is chosen by priority."""
    plain = AdapterState("plain", priority=1)
    able = AdapterState("able", Limits(base_capabilities={"gpu": 1}))
    world = a_snapshot(fixed(1))
    world = replace(world, adapters=(plain, able), wanted=(Lane(1, "q", "t", {"gpu": 1}),), offered=offered)
    assert decide(world).starts == (StartGroup(first, 1),)


@st.composite
def stiff_worlds(draw: st.DrawFn) -> Snapshot:
    """Return a pool of whole groups, some of whose workers have not come up."""
    groups, workers = [], []
    for index in range(draw(st.integers(0, 5))):
        size, here = draw(st.integers(1, 4)), draw(st.integers(0, 4))
        busy = draw(st.integers(0, 4))
        members = a_running_group(f"g{index}", min(size, here), busy)[1]
        status = GroupStatus.RUNNING if members else GroupStatus.LAUNCHING
        groups.append(a_group(f"g{index}", size, status, draw(st.floats(0, 99))))
        workers += members
    return a_snapshot(fixed(draw(st.integers(0, 15))), tuple(groups), tuple(workers), adapter=STIFF)


@settings(max_examples=300, deadline=None)
@given(stiff_worlds())
def test_whole_groups_settle_at_no_less_than_desired(world: Snapshot) -> None:
    """Groups go whole or not at all, never below what is desired, and no group is left that is all surplus."""
    plan = decide(world)
    assert all(resize.after == 0 for resize in plan.resizes)
    later, settled = after(world, plan), decide(after(world, plan))
    for _ in range(20):
        later = after(later, settled)
        settled = decide(later)
    assert settled.is_empty
    assert settled.supply >= settled.desired
    kept = [group for group in later.groups if group.target_size and group.status is not GroupStatus.STOPPING]
    some_here = {worker.group_id for worker in later.workers}
    assert all(group.target_size > settled.supply - settled.desired for group in kept if group.group_id in some_here)
