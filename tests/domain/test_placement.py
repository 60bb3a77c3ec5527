"""Which adapters start what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.adapters import AdapterStatus, Limits
from fleet.domain.placement import AdapterState, StartGroup, placed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
GPU = {"gpu": 1.0}


def adapter(name: str, *, groups: int = 0, priority: int = 0, resizes: bool = False, **limits: object) -> AdapterState:
    """Return an active adapter with these limits, which carries so many groups."""
    return AdapterState(name, Limits(**limits), groups, resizes, priority)  # type: ignore[arg-type]


def sizes(missing: int, *adapters: AdapterState, most: int = 100, wanted: tuple[dict[str, float], ...] = ()) -> object:
    """Return who starts groups of which size."""
    starts, _ = placed(missing, most, adapters, wanted, NOW)
    return [(start.adapter_id, start.size) for start in starts]


def test_an_adapter_without_limits_gets_one_group() -> None:
    """Where any size will do, one launch brings all that are missing; where nobody is, none."""
    assert sizes(7, adapter("a")) == [("a", 7)]
    assert sizes(0, adapter("a")) == []
    assert sizes(-2, adapter("a")) == []


@pytest.mark.parametrize(("ago", "asked"), [(-1.0, "b"), (0.0, "b"), (599.9, "b"), (600.0, "a"), (None, "a")], ids=str)
def test_who_refused_lately_is_asked_after_its_equals(ago: float | None, asked: str) -> None:
    """An adapter that had no room comes after those of lower priority for ten minutes after its pause: passes rarer
    than the pause would ask nobody else. Where it is the only one it is asked."""
    until = None if ago is None else NOW - timedelta(seconds=ago)
    full, other = replace(adapter("a", priority=5), backoff_until=until), adapter("b")
    starts, _ = placed(2, 100, (full, other), (), NOW)
    assert starts == (StartGroup(asked, 2),)
    alone, _ = placed(2, 100, (full,), (), NOW)
    assert bool(alone) is (ago != -1.0)


def test_groups_of_one_size_are_whole() -> None:
    """An adapter that makes groups of four starts two of them for five workers: it could not shrink one; where any size
    will do, four is the largest (SC18)."""
    assert sizes(5, adapter("a", workers_per_group=4)) == [("a", 4), ("a", 4)]
    assert sizes(4, adapter("a", workers_per_group=4)) == [("a", 4)]
    assert sizes(5, adapter("a", workers_per_group=4, resizes=True)) == [("a", 4), ("a", 1)]


def test_who_has_no_room_is_passed_over() -> None:
    """What one adapter has no room for another one starts, in the order of priority (LF02)."""
    first = adapter("z", priority=5, max_worker_groups=3, workers_per_group=2, groups=2)
    second = adapter("b", max_worker_groups=1)
    third = adapter("a", priority=-1)
    assert sizes(7, third, second, first) == [("z", 2), ("b", 5)]
    full = adapter("z", priority=5, max_worker_groups=2, groups=2)
    starts, reasons = placed(3, 100, (full,), (), NOW)
    assert (starts, list(map(str, reasons))) == (
        (),
        ["adapter z is full: 2 groups", "3 workers find no adapter with room"],
    )


def test_the_capable_come_first() -> None:
    """What waits for a capability that nobody offers is served by the adapter that brings it, whatever the priority."""
    plain, able = adapter("a", priority=9), adapter("b", base_capabilities=GPU)
    assert sizes(2, plain, able) == [("a", 2)]
    assert sizes(2, plain, able, wanted=(GPU,)) == [("b", 2)]


def test_who_is_paused_or_backs_off_is_left_alone() -> None:
    """Nothing is ordered from a paused adapter, or from one whose launches have just failed, and the reasons say so
    (LF02)."""
    paused = AdapterState("p", status=AdapterStatus.PAUSED, reason="the disk is full")
    failing = AdapterState("f", backoff_until=LATER, consecutive_failures=3)
    without_room = AdapterState("r", backoff_until=LATER)
    starts, reasons = placed(2, 100, (paused, failing, without_room, adapter("a")), (), NOW)
    assert starts == (StartGroup("a", 2),)
    assert list(map(str, reasons)) == [
        "adapter p is paused: the disk is full (fleet adapter resume p)",
        "adapter f backs off until 00:00:30Z after 3 failed launches (see fleet groups)",
        "adapter r backs off until 00:00:30Z: it had no room",
    ]
    assert placed(2, 100, (failing,), (), LATER)[0] == (StartGroup("f", 2),)


def test_no_more_than_allowed_in_one_pass() -> None:
    """A pass starts at most so many, and says how many there should be."""
    starts, reasons = placed(10, 4, (adapter("a"),), (), NOW)
    assert (starts, list(map(str, reasons))) == (
        (StartGroup("a", 4),),
        ["4 of 10 launches now: that many in one pass at most"],
    )


limits = st.builds(
    Limits,
    st.none() | st.integers(0, 5),
    st.none() | st.integers(1, 5),
    st.sampled_from([{}, GPU]),
)
states = st.lists(
    st.builds(AdapterState, st.sampled_from("abcd"), limits, st.integers(0, 6), st.booleans(), st.integers(-2, 2)),
    unique_by=lambda one: one.adapter_id,
)


@given(st.integers(0, 30), st.integers(1, 30), states, st.sampled_from([(), (GPU,)]))
def test_nobody_gets_more_than_it_has_room_for(
    missing: int, most: int, adapters: list[AdapterState], wanted: tuple[dict[str, float], ...]
) -> None:
    """No adapter gets more groups than it has room for, none of another size, and nothing is started in vain: taking
    any group away would leave fewer than are wanted. Less than that is started only where all are full."""
    starts, _ = placed(missing, most, adapters, wanted, NOW)
    groups = Counter(start.adapter_id for start in starts)
    total, goal = sum(start.size for start in starts), min(missing, most)
    for one in adapters:
        assert one.room is None or groups[one.adapter_id] <= one.room
        if one.limits.workers_per_group is not None:
            given = {s.size for s in starts if s.adapter_id == one.adapter_id}
            assert max(given, default=0) <= one.limits.workers_per_group
            assert one.resizes or given <= {one.limits.workers_per_group}
    assert all(total - start.size < goal for start in starts)
    if total < goal:
        assert all(one.room is not None and groups[one.adapter_id] == one.room for one in adapters)
