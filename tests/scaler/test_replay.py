"""A pool's past run again, from assigned values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fleet.domain.adapters import Limits
from fleet.domain.decision import Decision
from fleet.domain.demand import Offered, PoolOffer
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.history import Came, History
from fleet.domain.lanes import Lane
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.placement import AdapterState
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.errors import NotFound, UsageError
from fleet.scaler.replay import Past, replay_of
from fleet.simulation import engine
from fleet.simulation.loads import MOST_KINDS, MOST_TASKS

NOW = datetime(2026, 1, 8, 12, 0, tzinfo=UTC)
SINCE = NOW - timedelta(hours=1)
LANE = Lane(1, "default", "echo", {})
OWN = PoolSettings("drain_time", {}, 1, max_workers=10)
OFFER = PoolOffer("default", 1, (Offered(frozenset({"echo"})),))


def came(at: float, **given: Any) -> Came:
    """Return a task of 6 s that came so many seconds after the begin and waited for 2 s."""
    return replace(Came(LANE, SINCE + timedelta(seconds=at), 1, 6.0, 2.0, 1), **given)


def decision(at: float, **given: Any) -> Decision:
    """Return a decision that was taken so many seconds after the begin."""
    when = SINCE + timedelta(seconds=at)
    return replace(Decision(1, "default", when, when, 0, 1, 1, "drain_time", 0, 0, 0, 0, 0, 0, 0, 0), **given)


def group(created: float, boot: float | None, **given: Any) -> GroupRecord:
    """Return a group that was ordered then, and came up after `boot` seconds, or failed."""
    at = SINCE + timedelta(seconds=created)
    record = GroupRecord(
        group_id="g", pool="default", adapter_id="native:here", capabilities={}, target_size=1,
        status=GroupStatus.FAILED if boot is None else GroupStatus.STOPPED, launch_token="t",
        process=ProcessIdentity(), created_at=at,
        contacted_at=None if boot is None else at + timedelta(seconds=boot), boot_deadline_at=None,
        last_heartbeat=None, lease_expires_at=None, lease_seconds=20, exit_code=None, error=None, log_path=None,
        decision_id=None,
    )  # fmt: skip
    return replace(record, **given)


def past(*tasks: Came, **given: Any) -> Past:
    """Return a past in which these tasks came."""
    snapshot = Snapshot(
        NOW, "default", replace(OWN), (), (), frozenset(), frozenset(), 0, 0,
        given.pop("adapters", (AdapterState("native:here"),)), pools=given.pop("pools", (OFFER,)),
        **given.pop("snapshot", {}),
    )  # fmt: skip
    history = History(SINCE, NOW, tasks, **given.pop("history", {}))
    return replace(Past(snapshot, OWN, history), **given)


LEDGER = (
    decision(0, supply=0, actions={"start": [["native:here", 2]]}, repeated=0),
    decision(60, supply=2, repeated=9, last_seen_at=SINCE + timedelta(seconds=600)),
    decision(1_800, supply=2, actions={"drain": ["w"]}),
    decision(1_860, supply=1, draining=1),
    decision(2_000, supply=1, actions={"start": [["native:here", 1]]}),
)


def test_what_happened_by_ledger_and_rows() -> None:
    """Waits come from rows; worker-hours, launches and changes of direction from the ledger, where draining workers and
    those just ordered count."""
    found = replay_of(past(came(0), came(1, waited=10.0), ledger=LEDGER)).happened
    assert (found.tasks, found.mean_wait, found.p95_wait) == (2, 6.0, 10.0)
    # Two for 1,860 s, one and one that drains for 140 s, one and one ordered until the end.
    assert found.worker_hours == pytest.approx((2 * 1_860 + 2 * 140 + 2 * 1_600) / 3_600)
    assert (found.launches, found.flaps) == (3, 2)


def test_what_happened_is_not_made_up() -> None:
    """Without rows nothing is said of waits, without a ledger nothing of workers; both are told as unknown."""
    found = replay_of(past(came(0, begun=0, waited=0.0)))
    assert (found.happened.mean_wait, found.happened.p95_wait) == (None, None)
    assert (found.happened.worker_hours, found.happened.launches, found.happened.flaps) == (None, None, None)
    assert any("the ledger of this pool has no decision" in line for line in found.unknown)
    late = replay_of(past(came(0), ledger=LEDGER[2:]))
    assert any("what workers there were before 2026-01-08 11:30:00Z" in line for line in late.unknown)


def test_passes_boots_and_failures_as_they_were() -> None:
    """Passes are as far apart as the ledger tells, boots take what they took, launches fail as often as they did."""
    groups = (group(5, 3.0), group(6, 9.0), group(7, None), group(8, 6.0), group(-10, 500.0))
    found = replay_of(past(came(0), ledger=LEDGER, groups=groups)).scenario
    assert found.every == 60.0
    [place] = found.places
    assert place.boot.mean == 6.0
    assert place.failing == 0.25
    assert replay_of(past(came(0), ledger=LEDGER), every=5.0).scenario.every == 5.0
    unknown = replay_of(past(came(0), ledger=LEDGER))
    assert unknown.scenario.places[0].boot.mean == 1.0
    assert any("no launch is known" in line for line in unknown.unknown)


def test_places_keep_their_limits_and_offers() -> None:
    """Adapters are simulated with their limits and priority, and offer what the pool's template adds."""
    cloud = AdapterState("cloud", Limits(4, 2, {"gpu": 1}), priority=3, resizes=False)
    [place] = replay_of(past(came(0), adapters=(cloud,), snapshot={"offered": {"ssd": 1}})).scenario.places
    assert (place.limits.max_worker_groups, place.limits.workers_per_group) == (4, 2)
    assert (place.offers, place.priority, place.resizes) == ({"gpu": 1, "ssd": 1}, 3, False)


def test_only_what_counts_for_the_pool() -> None:
    """What another pool serves is left out; what nothing here serves is left out and told; so is what only workers
    started by hand could serve."""
    other = PoolOffer("other", 5, (Offered(frozenset({"blur"})),))
    blur, gpu = Lane(2, "default", "blur", {}), Lane(3, "default", "echo", {"gpu": 1})
    found = replay_of(past(came(0), came(1, lane=blur), came(2, lane=gpu, count=4), pools=(OFFER, other)))
    assert len(found.scenario.tasks) == 1
    assert "4 tasks are left out: nothing in this pool can serve them now" in found.unknown
    able = PoolOffer("default", 1, (Offered(frozenset({"echo"}), (), {"gpu": 1}),))
    by_hand = replay_of(past(came(0), came(2, lane=gpu, count=4), pools=(able,)))
    assert any("4 tasks are left out: only workers that somebody starts by hand" in line for line in by_hand.unknown)


def test_nothing_to_run_again() -> None:
    """Where nothing came for the pool, or nothing that could be served, that is said."""
    with pytest.raises(NotFound, match="no task came for it since 2026-01-08 11:00:00Z"):
        replay_of(past())
    with pytest.raises(NotFound, match="there is nothing to run again"):
        replay_of(past(came(0), adapters=()))
    with pytest.raises(UsageError, match="give a shorter --since"):
        replay_of(past(came(0, count=MOST_TASKS + 1)))


def test_tasks_without_a_duration_take_the_mean() -> None:
    """Tasks that have not ended count with the mean of their kind, else of all, and are told."""
    other = Lane(2, "default", "blur", {})
    offer = PoolOffer("default", 1, (Offered(frozenset({"echo", "blur"})),))
    found = replay_of(past(came(0), came(1, seconds=None), came(2, lane=other, seconds=None), pools=(offer,)))
    assert list(found.scenario.tasks.seconds) == [6.0, 6.0, 6.0]
    assert any("how long 2 tasks take that have not ended" in line for line in found.unknown)


def test_tasks_of_a_minute_are_spread_over_it() -> None:
    """Tasks that are known by the minute come evenly within it, and that is told."""
    found = replay_of(past(came(60, count=6, span=60.0), history={"is_exact": False}))
    assert [round(at) for at in found.scenario.tasks.times] == [0, 10, 20, 30, 40, 50]
    assert any("bursts within a minute are even" in line for line in found.unknown)
    pruned = replay_of(past(came(0), history={"rows_since": NOW, "is_exact": False}))
    assert any("are deleted: of that time statistics by minute" in line for line in pruned.unknown)


def test_very_many_kinds_become_few() -> None:
    """More kinds than are simulated become one for each requirement."""
    lanes = [Lane(number, "default", f"t{number}", {}) for number in range(MOST_KINDS + 1)]
    offer = PoolOffer("default", 1, (Offered(frozenset(lane.task for lane in lanes)),))
    tasks = [came(number, lane=lane) for number, lane in enumerate(lanes)]
    assert len(replay_of(past(*tasks, pools=(offer,))).scenario.tasks.kinds) == 1


def test_a_policy_on_the_past() -> None:
    """15 tasks of 6 s that came at once and had one worker wait less with a policy that follows the work, for more
    launches."""
    tasks = [came(0, waited=6.0 * number) for number in range(15)]
    found = replay_of(past(*tasks, ledger=(decision(0, supply=1, repeated=3_599, last_seen_at=NOW),)))
    outcome = found.outcome(OWN)
    assert (outcome.done, outcome.unfinished) == (15, 0)
    assert found.happened.mean_wait is not None
    assert outcome.mean_wait < found.happened.mean_wait / 2
    assert outcome.launches > 0


def test_too_many_passes_are_refused_in_the_words_of_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where passes are too many for anybody to wait for, the options to change are those of replay."""
    monkeypatch.setattr(engine, "MOST_WORK", 50.0)
    busy = [came(60 * number) for number in range(59)]
    with pytest.raises(UsageError, match="or a shorter --since"):
        replay_of(past(*busy), every=10.0).outcome(OWN)


@given(
    some.lists(some.tuples(some.floats(0, 3_000), some.integers(1, 30), some.floats(0, 100)), min_size=1, max_size=10),
    some.lists(some.tuples(some.floats(0, 3_600), some.integers(0, 5), some.integers(0, 5)), max_size=6),
)
@settings(max_examples=50, deadline=None)
def test_figures_of_the_past_are_sound(
    tasks: list[tuple[float, int, float]], ledger: list[tuple[float, int, int]]
) -> None:
    """Whatever came and was decided: every task is run again, the mean wait lies between the least and the greatest,
    and there were at most as many worker-hours as the most workers at a time would have had."""
    decisions = tuple(decision(at, supply=supply, draining=draining) for at, supply, draining in sorted(ledger))
    history = [came(at, count=count, begun=count, waited=wait * count) for at, count, wait in sorted(tasks)]
    found = replay_of(past(*history, ledger=decisions))
    assert len(found.scenario.tasks) == found.happened.tasks == sum(count for _, count, _ in tasks)
    assert list(found.scenario.tasks.times) == sorted(found.scenario.tasks.times)
    waits = [wait for _, _, wait in tasks]
    assert found.happened.mean_wait is not None
    assert min(waits) - 1e-6 <= found.happened.mean_wait <= max(waits) + 1e-6
    assert found.happened.p95_wait is not None
    assert min(waits) - 1e-6 <= found.happened.p95_wait <= max(waits) + 1e-6
    if found.happened.worker_hours is not None:
        most = max(supply + draining for _, supply, draining in ledger)
        assert 0 <= found.happened.worker_hours <= most + 1e-6
