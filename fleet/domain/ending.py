"""What becomes of a claimed task whose execution did not succeed, given what the row says at that moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.domain.execution import Fence, Finish
from fleet.domain.retry import MAX_INTERRUPTIONS
from fleet.domain.task import TaskStatus


@dataclass(frozen=True, slots=True)
class Held:
    """A running task as its row says it.

    Attributes:
        fence: the claim.
        attempt: the present attempt.
        max_attempts: attempts that count, at most.
        interruptions: how often it was ended from outside.
        cancel_requested: whether somebody asked for its end.
        deadline_at: no attempt begins after this.
        started_at: when its execution began; None while it was only claimed.
    """

    fence: Fence
    attempt: int
    max_attempts: int
    interruptions: int
    cancel_requested: bool
    deadline_at: datetime | None
    started_at: datetime | None


def released(fence: Fence, *, interrupted: bool, reason: str) -> Finish:
    """Return the record of a task given back: its attempt does not count."""
    return Finish(
        fence,
        TaskStatus.PENDING,
        error=reason if interrupted else None,
        error_kind="interrupted" if interrupted else None,
        attempt_back=True,
        interruption=interrupted,
    )


def lost(held: Held, reason: str) -> Finish:
    """Return the record of a task that was being executed by a worker now lost: its attempt counts."""
    left = held.attempt < held.max_attempts
    return Finish(held.fence, TaskStatus.PENDING if left else TaskStatus.FAILED, error=reason, error_kind="worker_lost")


def settled(finish: Finish, held: Held, now: datetime) -> Finish:
    """Return how an execution that did not succeed really ends.

    A request to cancel sticks: no retry follows. A task interrupted too often is condemned. No attempt is put off to
    its deadline or later.
    """
    if held.cancel_requested and finish.status is not TaskStatus.CANCELLED:
        return finish._replace(
            status=TaskStatus.CANCELLED,
            error=f"cancelled by request while it ran{_after(finish.error)}",
            error_kind="cancelled",
            attempt_back=False,
            interruption=False,
        )
    if finish.interruption and held.interruptions + 1 > MAX_INTERRUPTIONS:
        return finish._replace(
            status=TaskStatus.FAILED,
            error=f"interrupted more than {MAX_INTERRUPTIONS} times, last: {finish.error}",
            error_kind="interrupted_too_often",
        )
    if finish.status in (TaskStatus.SCHEDULED, TaskStatus.PENDING) and _too_late(finish, held, now):
        return finish._replace(
            status=TaskStatus.FAILED,
            error=f"no attempt begins after its deadline{_after(finish.error)}",
            error_kind="deadline_exceeded",
        )
    return finish


def _too_late(finish: Finish, held: Held, now: datetime) -> bool:
    return held.deadline_at is not None and now + timedelta(seconds=finish.retry_in or 0.0) >= held.deadline_at


def _after(error: str | None) -> str:
    return f"; last: {error}" if error else ""


def duplicate(finish: Finish, sibling: int) -> Finish:
    """Return the end of a task that cannot return to the queue, since one with its dedupe key waits there."""
    return finish._replace(
        status=TaskStatus.FAILED,
        error=f"task {sibling} with the same dedupe key waits already, and takes its place{_after(finish.error)}",
        error_kind="duplicate",
    )
