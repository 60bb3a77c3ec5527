"""The status of a fleet, from assigned values: no database, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import QueueCounts
from fleet.domain.worker import WorkerRecord, WorkerStatus
from fleet.monitoring.findings import why_nothing_runs
from fleet.monitoring.sight import Sight, desired
from fleet.monitoring.status import status_of
from fleet.monitoring.workers import WorkerState, state_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
HEARTBEAT, LEASE = 5.0, 20.0


def worker(name: str = "w", beat_age: float = 1.0, **changes: object) -> WorkerRecord:
    """Return a worker whose last beat was `beat_age` seconds ago."""
    beat = NOW - timedelta(seconds=beat_age)
    record = WorkerRecord(
        worker_id=name,
        incarnation=f"{name}-1",
        pool="default",
        status=WorkerStatus.ACTIVE,
        process=ProcessIdentity(host="here", pid=1),
        started_at=beat,
        last_heartbeat=beat,
        heartbeat_seconds=HEARTBEAT,
        lease_seconds=LEASE,
        lease_expires_at=beat + timedelta(seconds=LEASE),
        slots=1,
        current_task_id=None,
        group_id=None,
        adapter_id=None,
        capabilities={},
        queues=(),
        handlers=("echo",),
        tasks_done=0,
        tasks_failed=0,
        idle_since=None,
        paused=False,
        terminating_at=None,
        drain_deadline_at=None,
        stopped_at=None,
        stop_reason=None,
        version=None,
        log_path=None,
        metadata={},
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def group(status: GroupStatus, error: str | None = None, contacted: bool = False) -> GroupRecord:
    """Return a group of the pool `default`."""
    return GroupRecord(
        group_id="g",
        pool="default",
        adapter_id="native:here",
        capabilities={},
        target_size=1,
        status=status,
        launch_token="t",
        process=ProcessIdentity(),
        created_at=NOW,
        contacted_at=NOW if contacted else None,
        boot_deadline_at=None,
        last_heartbeat=None,
        lease_expires_at=None,
        lease_seconds=LEASE,
        exit_code=None,
        error=error,
        log_path=None,
        decision_id=None,
    )


def fixed(target: int) -> dict[str, PoolSettings]:
    """Return a pool that asks for `target` workers."""
    return {"default": PoolSettings("fixed", {"target_workers": target}, 1)}


WAITING = (QueueCounts("default", "echo", {}, pending=3, oldest_pending_at=NOW - timedelta(seconds=90)),)


@pytest.mark.parametrize(
    ("record", "dead", "state"),
    [
        (worker(), False, WorkerState.READY),
        (worker(current_task_id=7), False, WorkerState.BUSY),
        (worker(paused=True), False, WorkerState.PAUSED),
        (worker(status=WorkerStatus.TERMINATING, current_task_id=7), False, WorkerState.DRAINING),
        (worker(beat_age=2 * HEARTBEAT), False, WorkerState.READY),
        (worker(beat_age=2 * HEARTBEAT + 0.001), False, WorkerState.LATE),
        (worker(beat_age=LEASE), False, WorkerState.LATE),
        (worker(beat_age=LEASE + 0.001), False, WorkerState.DEAD),
        (worker(), True, WorkerState.DEAD),
        (worker(status=WorkerStatus.LOST), False, WorkerState.LOST),
        (worker(status=WorkerStatus.TERMINATED, beat_age=999), False, WorkerState.TERMINATED),
    ],
)
def test_state(record: WorkerRecord, dead: bool, state: WorkerState) -> None:
    """A worker is live with a fresh beat only, just before, at and just after each threshold (MO01)."""
    assert state_of(record, NOW, None, dead) is state


def test_killed_workers_are_counted_apart() -> None:
    """Eight killed workers and eight live ones are eight live and eight dead, at once and after the lease (MO01)."""
    killed = tuple(worker(f"k{number}") for number in range(8))
    late = tuple(replace(one, last_heartbeat=NOW, lease_expires_at=NOW - timedelta(seconds=1)) for one in killed)
    live = tuple(worker(f"w{number}") for number in range(8))
    at_once = Sight(NOW, killed + live, dead=frozenset((one.worker_id, one.incarnation) for one in killed))
    for sight in (at_once, Sight(NOW, late + live)):
        counts = status_of(sight).workers
        assert (counts["ready"], counts["dead"]) == (8, 8)


def test_outage_is_not_idleness() -> None:
    """Waiting tasks and only dead workers are a problem; no tasks and no workers are not (MO03)."""
    outage = status_of(Sight(NOW, (worker(beat_age=99),), counts=WAITING))
    assert not outage.healthy
    assert "3 tasks wait, no worker is live and no pool says" in outage.problems[0]
    assert status_of(Sight(NOW)).healthy


def test_outage_of_a_pool_that_asks_for_workers_names_the_scaler() -> None:
    """A pool that wants workers and has none, with tasks waiting, asks whether the scaler runs (MO03)."""
    found = status_of(Sight(NOW, counts=WAITING, pools=fixed(4)))
    assert not found.healthy
    assert "the pools ask for 4: does the scaler run?" in found.problems[0]


def test_scaled_to_zero_is_said_and_healthy() -> None:
    """A backlog behind a pool that was told to have no workers is a note, not an alarm (SC23)."""
    found = status_of(Sight(NOW, counts=WAITING, pools=fixed(0)))
    assert found.healthy
    assert "nothing will run them while every pool is scaled to 0" in found.notes[0]


def test_dead_worker_s_task_waits_for_rescue() -> None:
    """A dead worker that still holds a task makes the fleet unhealthy; one that held nothing is a note (MO01, MO03)."""
    found = status_of(Sight(NOW, (worker(), worker("x", beat_age=60, current_task_id=7))))
    assert not found.healthy
    assert found.problems[0].startswith("worker x is dead (last beat 60 s ago) and task 7 is not yet given back")
    idle = status_of(Sight(NOW, (worker("x", beat_age=60),)))
    assert idle.healthy
    assert idle.notes == ("worker x is dead (last beat 60 s ago) and held nothing",)


def test_finished_tasks_are_not_waiting() -> None:
    """Finished tasks are shown beside the open ones and never counted as waiting (MO02)."""
    totals = {"done": 20_000, "failed": 1, "pending": 0}
    found = status_of(Sight(NOW, totals=totals))
    assert found.healthy
    assert (found.tasks["pending"], found.tasks["done"]) == (0, 20_000)


def test_age_of_the_oldest_waiting_task() -> None:
    """The status says how long the oldest waiting task has waited (MO04)."""
    newer = QueueCounts("b", "echo", {}, pending=1, oldest_pending_at=NOW - timedelta(seconds=5))
    assert status_of(Sight(NOW, (worker(),), counts=(*WAITING, newer))).oldest_waiting_seconds == 90
    assert status_of(Sight(NOW, (worker(),))).oldest_waiting_seconds is None


def test_one_stopped_worker_shows_beside_three_live_ones() -> None:
    """A worker without fresh beats is named, although the others work (MO04)."""
    found = status_of(Sight(NOW, (*(worker(f"w{number}") for number in range(3)), worker("x", beat_age=15))))
    assert (found.workers["ready"], found.workers["late"]) == (3, 1)
    assert found.notes == ("worker x is late: its last beat was 15 s ago",)


@pytest.mark.parametrize(
    "counts",
    [
        QueueCounts("default", "typo", {}, pending=1),
        QueueCounts("default", "echo", {"gpu": 1}, pending=1),
        QueueCounts("elsewhere", "echo", {}, pending=1),
    ],
)
def test_task_that_nobody_takes_makes_no_worker_unhealthy(counts: QueueCounts) -> None:
    """A task that no live worker offers is named; liveness stays green (MO05)."""
    found = status_of(Sight(NOW, (worker(queues=("default",)),), counts=(counts,)))
    assert found.healthy
    assert found.notes == (f"{counts.task} in queue {counts.queue}: 1 task waits and no worker offers it",)
    assert found.handlers[0].offered_by == ()


def test_offers_name_the_workers() -> None:
    """Each handler's line names the live workers that take its tasks, draining ones not among them."""
    workers = (worker("a"), worker("b", status=WorkerStatus.TERMINATING), worker("c", beat_age=99))
    assert status_of(Sight(NOW, workers, counts=WAITING)).handlers[0].offered_by == ("a",)


def test_failed_launch_gives_its_reason() -> None:
    """A launch that never came up is told with the first line of its reason; a group that ran before, only where no
    worker of its pool is live."""
    found = status_of(Sight(NOW, groups=(group(GroupStatus.FAILED, "No module named 'x'\nlog"),)))
    assert found.notes == ("the last launch of pool default failed: No module named 'x' (fleet groups)",)
    ran = (group(GroupStatus.FAILED, "killed", contacted=True),)
    assert status_of(Sight(NOW, groups=ran)).notes == ("the last group of pool default failed: killed (fleet groups)",)
    assert status_of(Sight(NOW, (worker(),), groups=ran)).notes == ()


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (group(GroupStatus.LAUNCHING), "its launch has come to nothing"),
        (group(GroupStatus.RUNNING, contacted=True), "its supervisor, pid 7 on here, is gone"),
    ],
)
def test_a_lost_group_is_a_problem(lost: GroupRecord, why: str) -> None:
    """A group whose process is certainly gone is lost until somebody writes it off; no other is, and no ended one."""
    lost = replace(lost, process=ProcessIdentity(host="here", pid=7))
    other = replace(lost, group_id="other")
    found = status_of(Sight(NOW, groups=(lost, other), dead_groups=frozenset({"g"})))
    [problem] = found.problems
    assert f"group g of pool default is lost ({why}) and not yet written off" in problem
    assert (found.groups["lost"], found.groups[str(lost.status)]) == (1, 1)
    ended = replace(lost, status=GroupStatus.STOPPED)
    assert status_of(Sight(NOW, groups=(ended,), dead_groups=frozenset({"g"}))).healthy


@pytest.mark.parametrize(("age", "lost"), [(-0.001, False), (0.0, False), (0.001, True)])
def test_a_group_past_its_lease_is_lost(age: float, lost: bool) -> None:
    """Of a group elsewhere the lease tells: at its end it still holds."""
    expires = NOW - timedelta(seconds=age)
    running = replace(group(GroupStatus.RUNNING, contacted=True), lease_expires_at=expires)
    found = status_of(Sight(NOW, groups=(running,)))
    assert (found.groups["lost"], found.groups["running"]) == (int(lost), int(not lost))
    assert [("its lease is over" in problem) for problem in found.problems] == [True] * lost


def test_a_pool_whose_launches_fail_is_unhealthy_while_it_has_nobody() -> None:
    """A pool that asks for workers and has none because its last launch failed is unhealthy (MO03)."""
    failed = (group(GroupStatus.FAILED, "No module named 'x'"),)
    alone = status_of(Sight(NOW, groups=failed, pools=fixed(2)))
    assert alone.problems == ("pool default asks for 2 workers and has none: No module named 'x' (fleet groups)",)
    served = status_of(Sight(NOW, (worker(),), groups=failed, pools=fixed(2)))
    assert (served.problems, len(served.notes)) == ((), 1)
    assert status_of(Sight(NOW, groups=failed, pools=fixed(0))).problems == ()


@pytest.mark.parametrize(
    ("sight", "reason"),
    [
        (Sight(NOW), "no worker is live and no pool says how many there should be"),
        (Sight(NOW, pools=fixed(0)), "every pool was scaled to 0"),
        (Sight(NOW, pools=fixed(2)), None),
        (Sight(NOW, (worker(),)), None),
        (Sight(NOW, (worker(beat_age=60),)), "no worker is live and no pool says how many there should be"),
    ],
)
def test_why_nothing_runs(sight: Sight, reason: str | None) -> None:
    """A fresh queue without workers and policy says why nothing will run (SC23)."""
    assert why_nothing_runs(sight) == reason


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        (PoolSettings("no", {}, 1), None),
        (PoolSettings("no", {}, 1, min_workers=2), 2),
        (PoolSettings("fixed", {"target_workers": 5}, 1, max_workers=3), 3),
        (PoolSettings("fixed", {"target_workers": 0}, 1, min_workers=1), 1),
    ],
)
def test_desired(settings: PoolSettings, number: int | None) -> None:
    """What a pool asks for is its policy's number within its clamps."""
    assert desired(settings) == number
