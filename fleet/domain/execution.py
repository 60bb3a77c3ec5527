"""Executions: a claim, how it is fenced, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from fleet.domain.jsontext import printable
from fleet.domain.retry import MAX_INTERRUPTIONS, RetryPolicy
from fleet.domain.spreading import Spreading
from fleet.domain.task import MAX_ERROR_CHARACTERS, MAX_TRACEBACK_CHARACTERS, TaskStatus

# What is made for every task is a named tuple: a frozen dataclass of as many fields takes five times as long to make.


class Fence(NamedTuple):
    """What every write about a claimed task names: the claim itself.

    Attributes:
        task_id: the task.
        claim_token: the token of the claim; it rises with every claim of the task.
    """

    task_id: int
    claim_token: int


class ClaimedTask(NamedTuple):
    """A task as its claimer gets it, token included, from the claiming statement itself."""

    task_id: int
    claim_token: int
    task: str
    queue: str
    payload_json: str
    attempt: int
    max_attempts: int
    interruptions: int
    retry_json: str | None
    timeout_seconds: float | None
    deadline_at: datetime | None = None
    lane_id: int = 0

    @property
    def fence(self) -> Fence:
        """The fence for every write about this claim."""
        return Fence(self.task_id, self.claim_token)

    @property
    def has_attempts_left(self) -> bool:
        """Whether a failed attempt may be followed by another."""
        return self.attempt < self.max_attempts


class Finish(NamedTuple):
    """How one claimed execution ended, ready to be written with its fence.

    Attributes:
        fence: the claim.
        status: `done`, `failed`, `cancelled`, `scheduled` (to be tried again), or `pending` (given back).
        result_json: the result as JSON text, when done.
        error: one line, when not done.
        error_kind: the exception's name, or `timeout`, `killed`, ...
        traceback: for people.
        retry_in: seconds until the next attempt, when scheduled.
        attempt_back: whether the attempt is not counted.
        interruption: whether the execution was ended from outside, for the count that condemns.
        exit_code: of the worker, or the command, that ended with it.
        signal: that ended the worker or the command.
        peak_memory_mb: of the worker or the command.
        started_seconds_ago: how long ago the execution began (a batched task's start is written with its end).
        seconds: how long it executed.
    """

    fence: Fence
    status: TaskStatus
    result_json: str | None = None
    error: str | None = None
    error_kind: str | None = None
    traceback: str | None = None
    retry_in: float | None = None
    attempt_back: bool = False
    interruption: bool = False
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_mb: float | None = None
    started_seconds_ago: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an execution failed.

    Attributes:
        kind: a short name to filter by: the exception's class, `timeout`, `killed`, `bad_payload`, ...
        error: one line for people.
        traceback: the traceback's text, if there is one.
        final: whether no retry can help.
        retry_in: seconds until the next attempt, where the handler has said so.
        exit_code: of the process that it was about, if it was about one.
        signal: that ended that process.
        peak_memory_mb: of that process, where known.
    """

    kind: str
    error: str
    traceback: str | None = None
    final: bool = False
    retry_in: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """How an execution ended that neither succeeded nor failed.

    Attributes:
        status: `cancelled`, `scheduled` (snoozed), or `pending` (given back).
        reason: one line for people.
        retry_in: seconds until it is tried again, when snoozed.
    """

    status: TaskStatus
    reason: str
    retry_in: float | None = None


def done(claimed: ClaimedTask, result_json: str | None, seconds: float, ago: float) -> Finish:
    """Return the record of a success."""
    return Finish(claimed.fence, TaskStatus.DONE, result_json=result_json, seconds=seconds, started_seconds_ago=ago)


def failed(claimed: ClaimedTask, failure: Failure, seconds: float, ago: float, random: Callable[[], float]) -> Finish:
    """Return the record of a failure: to be tried again while attempts remain, else final."""
    retry = claimed.has_attempts_left and not failure.final
    delay = None
    if retry:
        delay = _delay(claimed, random) if failure.retry_in is None else failure.retry_in
    return Finish(
        claimed.fence,
        TaskStatus.SCHEDULED if retry else TaskStatus.FAILED,
        error=printable(failure.error, MAX_ERROR_CHARACTERS),
        error_kind=printable(failure.kind, 100),
        traceback=failure.traceback and printable(failure.traceback, MAX_TRACEBACK_CHARACTERS),
        retry_in=delay,
        exit_code=failure.exit_code,
        signal=failure.signal,
        peak_memory_mb=failure.peak_memory_mb,
        seconds=seconds,
        started_seconds_ago=ago,
    )


def retry_after_death(claimed: ClaimedTask, random: Callable[[], float]) -> float | None:
    """Return the seconds until the next attempt should this one's process die; None when it is the last."""
    return _delay(claimed, random) if claimed.has_attempts_left else None


def _delay(claimed: ClaimedTask, random: Callable[[], float]) -> float:
    policy, bound = _policy(claimed.retry_json, claimed.attempt)
    return policy.drawn(bound, random)


@lru_cache(maxsize=1_024)
def _policy(retry_json: str | None, attempt: int) -> tuple[RetryPolicy, float]:
    policy = RetryPolicy.from_json(_loads(retry_json))
    return policy, policy.bound(attempt)


def withdrawn(claimed: ClaimedTask, withdrawal: Withdrawal, seconds: float, ago: float) -> Finish:
    """Return the record of an execution that its handler has ended for another reason than success or failure."""
    cancelled = withdrawal.status is TaskStatus.CANCELLED
    given_back = withdrawal.status is TaskStatus.PENDING
    return Finish(
        claimed.fence,
        withdrawal.status,
        error=None if withdrawal.status is TaskStatus.SCHEDULED else printable(withdrawal.reason, MAX_ERROR_CHARACTERS),
        error_kind={TaskStatus.CANCELLED: "cancelled", TaskStatus.PENDING: "stopped"}.get(withdrawal.status),
        retry_in=withdrawal.retry_in,
        attempt_back=not cancelled,
        interruption=given_back,
        seconds=seconds,
        started_seconds_ago=ago,
    )


def _loads(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def interrupted_too_often(interruptions: int) -> bool:
    """Return whether a task that was ended from outside this many times is condemned."""
    return interruptions > MAX_INTERRUPTIONS


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: the incarnation that every claim is bound to.

    Attributes:
        worker_id: the worker.
        incarnation: its life.
        lease_seconds: its lease (a task that it failed is left to others for that long).
        concurrent: whether it begins all tasks of one claim at once, not one after the other.
        spreading: how its claims spread; None where it takes what is next.
    """

    worker_id: str
    incarnation: str
    lease_seconds: float
    concurrent: bool = False
    spreading: Spreading | None = None


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """What a claim got.

    Attributes:
        tasks: the claimed tasks, in claim order; may be empty.
        accepted: of a `finish_and_claim`, the fences whose finish was written; the others had lost their claim.
        max_lane_id: the newest lane, so that the worker knows whether to learn lanes.
        status: the claimant's status as stored, None when the registry does not know this incarnation.
        left_for: seconds until a task that was left to a better match is left to it no longer; None where none was.
    """

    tasks: tuple[ClaimedTask, ...] = ()
    accepted: frozenset[Fence] = field(default_factory=frozenset)
    max_lane_id: int = 0
    status: str | None = None
    left_for: float | None = None


class Outcome(StrEnum):
    """How an attempt went that did not succeed."""

    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A row of `work_attempt`: one execution that did not succeed.

    Attributes:
        task_id: the task.
        claim_token: of that execution.
        attempt: which attempt it was, from 1.
        worker: who executed it.
        incarnation: the worker's life.
        outcome: how it went.
        error: one line.
        error_kind: the exception's name, or `timeout`, `killed`, ...
        traceback: for people.
        exit_code: of the worker, or the command, that ended with it.
        signal: that ended the worker or the command.
        peak_memory_mb: of the worker or the command.
        started_at: when its execution began.
        ended_at: when it ended.
    """

    task_id: int
    claim_token: int
    attempt: int
    worker: str | None
    incarnation: str | None
    outcome: Outcome
    error: str | None
    error_kind: str | None
    traceback: str | None
    exit_code: int | None
    signal: int | None
    peak_memory_mb: float | None
    started_at: datetime | None
    ended_at: datetime
