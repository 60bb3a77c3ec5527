"""What a status says of workers that are not well: from assigned values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.quarantine import Quarantine, Scope
from fleet.domain.snapshot import PoolSettings
from fleet.domain.worker import WorkerRecord, WorkerStatus
from fleet.monitoring.sight import Sight
from fleet.monitoring.status import status_of
from fleet.monitoring.workers import WorkerState, state_of
from tests.domain.rows import LEASE, NOW, metrics, on_host, recent, worker

HOUR = timedelta(hours=1)


def held(subject: str = "w", scope: Scope = Scope.WORKER, until: timedelta = HOUR) -> Quarantine:
    """Return a quarantine that is not released."""
    return Quarantine(1, scope, subject, {}, "7 tasks failed here", NOW - HOUR, NOW + until)


def sight(*workers: WorkerRecord, **given: Any) -> Sight:
    """Return one reading of a fleet."""
    return Sight(NOW, workers, **given)


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (worker(), WorkerState.QUARANTINED),
        (worker(current_task_id=7), WorkerState.QUARANTINED),
        (worker(paused=True), WorkerState.QUARANTINED),
        (worker(status=WorkerStatus.TERMINATING), WorkerState.DRAINING),
        (worker(beat_age=11), WorkerState.LATE),
        (worker(beat_age=LEASE + 1), WorkerState.DEAD),
        (worker(status=WorkerStatus.LOST), WorkerState.LOST),
    ],
)
def test_state_of_a_worker_in_quarantine(record: WorkerRecord, state: WorkerState) -> None:
    """Quarantine is told of whoever could claim but for it, and of nobody else."""
    assert state_of(record, NOW, None, False, quarantined=True) is state


@pytest.mark.parametrize(
    ("one", "quarantined"),
    [
        (held(), True),
        (held("h", Scope.HOST), True),
        (held("h"), False),
        (held("w", Scope.HOST), False),
        (held(until=timedelta(milliseconds=1)), True),
        (held(until=timedelta(0)), False),
    ],
    ids=["worker", "host", "worker named like the host", "host named like the worker", "before its end", "at its end"],
)
def test_a_quarantine_is_a_problem_while_it_holds(one: Quarantine, quarantined: bool) -> None:
    """A live worker in quarantine, or on a host that is, makes the fleet unhealthy, with what to do."""
    found = status_of(sight(worker(), quarantines=(one,)))
    assert found.healthy is not quarantined
    assert (found.workers["quarantined"], found.workers["ready"]) == (int(quarantined), int(not quarantined))
    if quarantined:
        [problem] = found.problems
        assert problem.startswith(f"{one.scope} {one.subject} is in quarantine until 2026-01-01 1")
        assert problem.endswith(f"then fleet quarantine release {one.subject})")


def test_a_host_with_many_workers_is_one_problem() -> None:
    """A host in quarantine is told once, not for each of its workers."""
    found = status_of(sight(worker("a"), worker("b"), quarantines=(held("h", Scope.HOST),)))
    assert len(found.problems) == 1


def test_a_worker_in_quarantine_offers_nothing_and_counts_for_no_pool() -> None:
    """It is live, and neither takes waiting tasks nor is it one of those that its pool has."""
    pools = {"default": PoolSettings("fixed", {"target_workers": 2}, 1)}
    found = sight(worker(), worker("x"), quarantines=(held(),), pools=pools)
    assert [one.worker_id for one in found.claiming()] == ["x"]
    assert len(found.live()) == 2
    assert status_of(found).pools[0].live == 1


@pytest.mark.parametrize(
    ("metadata", "advice"),
    [
        (metrics(rss_mb=512), "(fleet worker restart w replaces it after its task)"),
        (on_host(disk_free_mb=1), "(free space where the database and the logs lie)"),
        (recent(0, 9), "(fleet tasks --status failed and /logs/w say why)"),
    ],
)
def test_an_unhealthy_worker_is_a_problem_with_advice(metadata: dict[str, Any], advice: str) -> None:
    """What fails is told with its numbers and what helps; what merely warns beside it is left out."""
    found = status_of(sight(worker(metadata=metadata, log_path="/logs/w", beat_age=9)))
    [problem] = found.problems
    assert problem.startswith("worker w is unhealthy: ")
    assert problem.endswith(advice)
    assert found.health == {"healthy": 0, "degraded": 0, "unhealthy": 1, "unknown": 0}


def test_degraded_is_a_note_and_unknown_is_neither() -> None:
    """A worker that is degraded is told with the reason; one without metrics leaves the fleet healthy."""
    found = status_of(sight(worker("a", metadata=metrics(rss_mb=470)), worker("b", metadata={})))
    assert found.healthy
    assert found.notes == ("worker a is degraded: memory: 470 MiB resident of 512 allowed",)


def test_the_dead_are_told_of_by_their_state() -> None:
    """A worker past its lease is dead, which is told elsewhere: it is not unhealthy as well."""
    ill = worker(metadata=metrics(rss_mb=512))
    dead = replace(ill, last_heartbeat=NOW - HOUR, lease_expires_at=NOW - HOUR)
    assert status_of(sight(dead)).problems == ()
    assert sum(status_of(sight(dead)).health.values()) == 0
