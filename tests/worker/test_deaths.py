"""What is written when a worker process ends without having deregistered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.domain.task import TaskStatus
from fleet.worker.deaths import describe, failure_of
from fleet.worker.protocol import Death, Reason

DEATH = Death(
    worker_id="w",
    incarnation="0" * 32,
    reason=Reason.CRASH,
    task_id=7,
    token=3,
    seconds=1.5,
    timeout=0.0,
    retry_in=2.0,
    exit_code=None,
    signal=9,
    peak_kb=4096,
)


def test_the_task_that_died_is_told_how() -> None:
    """A crash is written with signal and peak memory, and the attempt comes again after the policy's wait."""
    finish = failure_of(DEATH)
    assert finish is not None
    assert (finish.status, finish.retry_in, finish.error_kind) == (TaskStatus.SCHEDULED, 2.0, "killed")
    assert (finish.exit_code, finish.signal, finish.peak_memory_mb) == (None, 9, 4.0)
    assert finish.fence.task_id == 7


def test_the_last_attempt_ends_as_failed() -> None:
    """Without a further attempt the task has failed; an exit is told by its code."""
    finish = failure_of(replace(DEATH, retry_in=None, signal=None, exit_code=7))
    assert finish is not None
    assert (finish.status, finish.exit_code, finish.error_kind) == (TaskStatus.FAILED, 7, "exited")


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in (Reason.CRASH, Reason.TIMEOUT)])
def test_an_ordered_end_is_charged_to_nobody(reason: Reason) -> None:
    """Whoever is killed by order, a cancel included, spends no attempt; the reason is told in words."""
    assert failure_of(replace(DEATH, reason=reason)) is None
    assert describe(replace(DEATH, reason=reason)) != reason


def test_an_idle_worker_is_charged_nothing() -> None:
    """A worker that crashes between two tasks takes none with it."""
    assert failure_of(replace(DEATH, task_id=0)) is None
