"""The status of pools whose numbers follow the work, from assigned values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import QueueCounts
from fleet.domain.worker import WorkerStatus
from fleet.monitoring.findings import why_nothing_runs
from fleet.monitoring.sight import PATIENCE, LastPass, Sight
from fleet.monitoring.status import status_of
from tests.monitoring.test_status import NOW, WAITING, fixed, group, worker

ELASTIC = {"default": PoolSettings("drain_time", {}, 1)}


def last(desired: int | None, ago: float = 10.0, pool: str = "default") -> dict[str, LastPass]:
    """Return that a pool's last pass wanted so many workers, so many seconds ago."""
    return {pool: LastPass(desired, NOW - timedelta(seconds=ago))}


def coming(size: int = 2, **given: Any) -> GroupRecord:
    """Return a group that was ordered and has not come up."""
    record = replace(group(GroupStatus.REQUESTED), target_size=size, boot_deadline_at=NOW + timedelta(seconds=50))
    return replace(record, **given)


def test_zero_workers_and_no_work_is_healthy() -> None:
    """A pool that follows the work and has nobody is well while nothing waits, however long ago its last pass was."""
    for passes in ({}, last(0), last(0, 9999), last(3, 9999)):
        found = status_of(Sight(NOW, pools=ELASTIC, passes=passes))
        assert (found.healthy, found.notes) == (True, ())


def test_a_pool_asks_for_what_its_last_pass_wanted() -> None:
    """The number shown is the last decision, held to the bounds of now; before the first, it is the minimum or none."""
    for passes, settings, asked in (
        (last(3), {}, 3),
        (last(0), {}, 0),
        (last(3), {"max_workers": 2}, 2),
        (last(0), {"min_workers": 1}, 1),
        ({}, {}, None),
        ({}, {"min_workers": 2}, 2),
        (last(None), {}, None),
    ):
        pool = {"default": PoolSettings("vanilla", {}, 1, **settings)}  # type: ignore[arg-type]
        assert status_of(Sight(NOW, pools=pool, passes=passes)).pools[0].desired == asked
    assert status_of(Sight(NOW, pools=fixed(4), passes=last(9))).pools[0].desired == 4


@pytest.mark.parametrize(("ago", "healthy"), [(0, True), (PATIENCE, True), (PATIENCE + 0.001, False)])
def test_tasks_wait_for_the_next_pass(ago: float, healthy: bool) -> None:
    """Tasks that came since the last pass wanted nobody are no outage until two minutes have passed without another
    (MO03)."""
    found = status_of(Sight(NOW, counts=WAITING, pools=ELASTIC, passes=last(0, ago)))
    assert found.healthy is healthy
    if healthy:
        assert "3 tasks wait: the last pass of pool default" in found.notes[0]
    else:
        assert found.problems == (
            "3 tasks wait, no worker is live, and no pass has looked at pool default for 2m00s: does the scaler run?",
        )


def test_tasks_that_no_pass_has_ever_looked_at() -> None:
    """A pool that no pass has decided for, with tasks waiting, asks whether the scaler runs."""
    found = status_of(Sight(NOW, counts=WAITING, pools=ELASTIC))
    assert "no pass has decided for pool default yet: does the scaler run?" in found.problems[0]


def test_launches_under_way_are_no_problem() -> None:
    """Tasks that wait for workers which are launching are a note that counts them; a launch that is lost is none."""
    sight = Sight(NOW, counts=WAITING, pools=ELASTIC, passes=last(2), groups=(coming(),))
    found = status_of(sight)
    assert found.healthy
    assert found.notes == ("3 tasks wait: 2 workers of pool default are launching",)
    assert (found.pools[0].live, found.pools[0].launching) == (0, 2)
    over = coming(boot_deadline_at=NOW - timedelta(seconds=1))
    assert not status_of(replace(sight, groups=(over,))).healthy


def test_wanted_and_not_launching_is_a_problem() -> None:
    """A pool whose last pass wanted workers, and that has none and none on the way, is told, with where to look."""
    found = status_of(Sight(NOW, counts=WAITING, pools=ELASTIC, passes=last(2)))
    assert "pool default wants 2, and none is launching (fleet explain scaling)" in found.problems[0]


def test_failed_launches_of_an_elastic_pool_are_a_problem() -> None:
    """A pool that asks for workers and has none because its launches fail is told with the reason; while another launch
    is under way it is a note."""
    failed = group(GroupStatus.FAILED, "no such module")
    sight = Sight(NOW, counts=WAITING, pools=ELASTIC, passes=last(2), groups=(failed,))
    assert any("asks for 2 workers and has none: no such module" in one for one in status_of(sight).problems)
    other = coming(group_id="h", created_at=NOW - timedelta(seconds=1))
    found = status_of(replace(sight, groups=(failed, other)))
    assert found.healthy
    assert any("the last launch of pool default failed: no such module" in one for one in found.notes)


def test_a_scaler_that_has_stopped_is_noted_while_there_is_work() -> None:
    """While workers are there a pool that no pass looks at any more is a note, and none when it is idle and empty."""
    sight = Sight(NOW, (worker(),), counts=WAITING, pools=ELASTIC, passes=last(1, PATIENCE + 1))
    found = status_of(sight)
    assert found.healthy
    assert "no pass has looked at pool default for 2m01s, and its number follows the work" in found.notes[0]
    assert status_of(replace(sight, passes=last(1, PATIENCE))).notes == ()


def test_told_to_have_nobody_is_on_purpose() -> None:
    """A maximum of zero is somebody's word, whatever the policy; a decision of zero is not."""
    told = {"default": PoolSettings("drain_time", {}, 1, max_workers=0)}
    found = status_of(Sight(NOW, counts=WAITING, pools=told, passes=last(0, 9999)))
    assert found.healthy
    assert "nothing will run them while every pool is scaled to 0" in found.notes[0]


def test_settings_that_passes_refuse_are_told() -> None:
    """A policy that nobody here knows, and values that cannot be, are problems; a policy that passes know is not."""
    unknown = {"default": PoolSettings("astrology", {}, 1)}
    assert "policy astrology is unknown here" in status_of(Sight(NOW, pools=unknown)).problems[0]
    assert status_of(Sight(NOW, pools=unknown, passes=last(0))).healthy
    broken = {"default": PoolSettings("drain_time", {"drain_time": "soon"}, 1)}
    [problem] = status_of(Sight(NOW, pools=broken, passes=last(0))).problems
    assert problem.startswith("pool default: its passes are refused: drain_time 'soon'")


def test_whether_a_new_task_would_ever_run() -> None:
    """What enqueue warns of: nobody is live and no pass is to be expected; a pool that is looked at will start some
    (SC23)."""
    assert why_nothing_runs(Sight(NOW, pools=ELASTIC, passes=last(0))) is None
    reason = why_nothing_runs(Sight(NOW, pools=ELASTIC, passes=last(0, 600)))
    assert reason == "no worker is live, and no pass has looked at pool default for 10m00s: does the scaler run?"
    assert why_nothing_runs(Sight(NOW, (worker(),), pools=ELASTIC)) is None


@given(
    some.lists(
        some.tuples(
            some.sampled_from(list(WorkerStatus)),
            some.sampled_from([0.0, 11.0, 99.0]),
            some.booleans(),
            some.booleans(),
            some.booleans(),
        ),
        max_size=12,
    )
)
def test_every_worker_is_counted_once(rows: list[tuple[WorkerStatus, float, bool, bool, bool]]) -> None:
    """Whatever workers do, each is in one state: what is shown adds up, and nobody who drains or is dead is ready
    (MO01)."""
    workers = tuple(
        worker(f"w{place}", age, status=status, current_task_id=place if busy else None, paused=paused)
        for place, (status, age, busy, paused, _) in enumerate(rows)
    )
    dead = frozenset((each.worker_id, each.incarnation) for each, row in zip(workers, rows, strict=True) if row[4])
    found = status_of(Sight(NOW, workers, dead=dead, pools=ELASTIC, passes=last(1)))
    assert sum(found.workers.values()) == len(workers)
    states = Counter(found.workers)
    assert states["terminated"] == sum(each.status is WorkerStatus.TERMINATED for each in workers)
    assert found.pools[0].live <= states["ready"] + states["busy"] + states["paused"]
    assert found.pools[0].draining == states["draining"]


def test_waiting_and_running_are_counted_apart() -> None:
    """A task that runs does not wait, and the other way round; what waits for others or its time does neither
    (MO02)."""
    counts = (QueueCounts("default", "echo", {}, blocked=1, scheduled=2, pending=3, running=4),)
    found = status_of(Sight(NOW, (worker(),), counts=counts))
    assert found.tasks == {"blocked": 1, "scheduled": 2, "pending": 3, "running": 4}
