"""What the status says of the queue and of the file, from assigned values: no database, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import SHELL_TASK, QueueCounts
from fleet.monitoring.findings import LARGE_FREE, LARGE_LOG, LONG_OPEN
from fleet.monitoring.sight import Sight, desired
from fleet.monitoring.status import status_of
from fleet.monitoring.workers import WorkerState, state_of
from fleet.storage.interfaces import OpenTransaction, Pause
from tests.monitoring.test_status import LEASE, NOW, WAITING, fixed, worker

OVERDUE = worker(beat_age=LEASE + 1)
LIFE = frozenset({(OVERDUE.worker_id, OVERDUE.incarnation)})


def test_a_worker_past_its_lease_whose_process_lives_is_late() -> None:
    """A lease that ran out while the process is seen here makes it late; where it is not seen, dead (MO01)."""
    assert state_of(OVERDUE, NOW, None, False, moving=True) is WorkerState.LATE
    assert state_of(OVERDUE, NOW, None, False, moving=False) is WorkerState.DEAD
    found = status_of(Sight(NOW, (OVERDUE,), moving=LIFE))
    assert found.notes == ("worker w is late: its last beat was 21 s ago, and its process lives",)


def test_waiting_tasks_and_late_workers_are_no_plain_outage() -> None:
    """Where tasks wait and every worker is late, the problem says that they are late (MO01, MO03)."""
    found = status_of(Sight(NOW, (OVERDUE,), counts=WAITING, moving=LIFE))
    assert found.problems == (
        "3 tasks wait, no worker is live, but 1 is late: their beats may wait for somebody's lock",
    )


def test_a_paused_queue_is_no_outage() -> None:
    """What waits in a paused queue is told with the pause; nobody is missed for it, nor its handler (MO03, MO05)."""
    pauses = (Pause("default", NOW + timedelta(hours=1)),)
    found = status_of(Sight(NOW, counts=WAITING, pauses=pauses))
    assert found.healthy
    assert found.notes == ("queue default is paused until 2026-01-01 13:00:00Z: 3 tasks wait",)
    assert found.paused == {"default": NOW + timedelta(hours=1)}
    unoffered = status_of(Sight(NOW, (worker(handlers=()),), counts=WAITING, pauses=(Pause("default", None),)))
    assert unoffered.notes == ("queue default is paused: 3 tasks wait",)


def test_a_pause_of_another_queue_hides_nothing() -> None:
    """A backlog beside a paused queue is a problem still (MO03)."""
    assert not status_of(Sight(NOW, counts=WAITING, pauses=(Pause("other", None),))).healthy


def test_tasks_held_by_limits_are_told() -> None:
    """How many tasks limits hold back is told; they count as blocked, not as waiting for a worker (MO02)."""
    counts = (QueueCounts("default", "echo", {}, blocked=5),)
    found = status_of(Sight(NOW, counts=counts, held=5))
    assert found.healthy
    assert found.notes == ("5 tasks are held back by limits (fleet limit list)",)
    assert (found.held_by_limits, found.tasks["blocked"], found.tasks["pending"]) == (5, 5, 0)


def test_a_paused_schedule_is_named() -> None:
    """A schedule that is paused is named: an error may have paused it."""
    found = status_of(Sight(NOW, paused_schedules=("nightly",)))
    assert found.healthy
    assert found.notes[0].startswith("schedule nightly is paused: ")
    assert found.paused_schedules == ("nightly",)


@pytest.mark.parametrize(
    ("sizes", "note"),
    [
        ({"log": LARGE_LOG, "free": LARGE_FREE}, None),
        ({"log": LARGE_LOG + 1}, "the write-ahead log has 256 MiB: somebody reads an old snapshot all the time"),
        ({"free": LARGE_FREE + 1}, "256 MiB of the file are free pages: fleet db vacuum gives them back"),
    ],
)
def test_a_log_and_free_pages_are_told_once_they_are_large(sizes: dict[str, int], note: str | None) -> None:
    """The log and the free pages are told just above their threshold, and not at it (DB01, DB09)."""
    assert status_of(Sight(NOW, sizes=sizes)).notes == (() if note is None else (note,))


@pytest.mark.parametrize(("seconds", "is_told"), [(LONG_OPEN - 0.1, False), (LONG_OPEN, True), (7_300.0, True)])
def test_an_old_open_transaction_is_told(seconds: float, is_told: bool) -> None:
    """Who keeps a server from removing dead rows is named with its process, from five minutes on (DB07)."""
    found = status_of(Sight(NOW, transactions=(OpenTransaction(42, "psql", "idle in transaction", seconds),)))
    assert found.problems == ()
    assert bool(found.notes) is is_told
    assert all("server process 42 (psql, idle in transaction) has been open for" in note for note in found.notes)


@pytest.mark.parametrize("value", ["x", None, -1, 1.5, True, [3], {"a": 1}])
def test_a_target_that_is_no_number_is_a_problem(value: object) -> None:
    """A target that somebody wrote by hand and that is no number is named with its pool, and asks for nobody."""
    settings = PoolSettings("fixed", {"target_workers": value}, 1)
    assert desired(settings) is None
    assert desired(replace(settings, min_workers=2)) == 2
    [problem] = status_of(Sight(NOW, pools={"default": settings})).problems
    what = "missing" if value is None else f"{value!r}, which is no number"
    assert problem.startswith(f"pool default: its setting target_workers is {what}")


def test_a_target_that_is_missing_is_a_problem() -> None:
    """A pool of policy fixed without its number is named, asks for nobody, and was not scaled to 0."""
    settings = PoolSettings("fixed", {}, 1)
    assert desired(settings) is None
    found = status_of(Sight(NOW, pools={"default": settings}))
    assert found.problems == (
        "pool default: its setting target_workers is missing: set it with fleet-scaler --target-workers N",
    )
    assert not Sight(NOW, pools={"default": settings}).scaled_to_zero()


def test_names_that_are_no_text_are_sorted() -> None:
    """A pool whose name somebody wrote as a blob is listed like any other."""
    pools: dict[str, PoolSettings] = {b"\xff": fixed(1)["default"], "default": fixed(1)["default"]}  # type: ignore[dict-item]
    assert len(status_of(Sight(NOW, pools=pools)).pools) == 2


def test_finished_tasks_are_told_over_ten_minutes_and_a_day() -> None:
    """The statistics of finished tasks stand beside the open ones, and are not counted among them (MO02)."""
    found = status_of(Sight(NOW, finished={600: {"done": 5, "failed": 1}, 86_400: {"done": 900, "failed": 2}}))
    assert (found.finished_10m, found.finished_24h["done"]) == ({"done": 5, "failed": 1}, 900)
    assert found.tasks == {"blocked": 0, "scheduled": 0, "pending": 0, "running": 0}


def test_commands_that_nobody_may_execute_are_told() -> None:
    """Commands wait for a worker with --allow-shell, and the status says so; where one has it, something else lacks."""
    counts = (QueueCounts("default", SHELL_TASK, {}, pending=2),)
    found = status_of(Sight(NOW, (worker(),), counts=counts))
    assert found.notes == ("fleet.shell in queue default: 2 tasks wait and no worker was started with --allow-shell",)
    elsewhere = (replace(counts[0], requires={"gpu": 1.0}),)
    found = status_of(Sight(NOW, (worker(handlers=(SHELL_TASK,)),), counts=elsewhere))
    assert found.notes == ("fleet.shell in queue default: 2 tasks wait and no worker offers it",)
