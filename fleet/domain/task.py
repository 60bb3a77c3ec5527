"""Tasks: what is enqueued, what is claimed, how an execution ends, and the life cycle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.jsontext import printable
from fleet.domain.lifecycle import LifeCycle
from fleet.domain.retry import MAX_INTERRUPTIONS, RetryPolicy

INLINE_PAYLOAD_BYTES = 2048
MAX_ERROR_CHARACTERS = 4_000
MAX_TRACEBACK_CHARACTERS = 20_000
MAX_BATCH = 100


class TaskStatus(StrEnum):
    """Where a task is in its life; `pending` alone is claimable."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATUSES = (TaskStatus.BLOCKED, TaskStatus.SCHEDULED, TaskStatus.PENDING, TaskStatus.RUNNING)
FINAL_STATUSES = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)

TASK_LIFE: LifeCycle[TaskStatus] = LifeCycle(
    "task",
    {
        TaskStatus.BLOCKED: frozenset(
            {TaskStatus.SCHEDULED, TaskStatus.PENDING, TaskStatus.FAILED, TaskStatus.CANCELLED}
        ),
        TaskStatus.SCHEDULED: frozenset(
            {TaskStatus.PENDING, TaskStatus.BLOCKED, TaskStatus.FAILED, TaskStatus.CANCELLED}
        ),
        TaskStatus.PENDING: frozenset(
            {TaskStatus.RUNNING, TaskStatus.BLOCKED, TaskStatus.FAILED, TaskStatus.CANCELLED}
        ),
        TaskStatus.RUNNING: frozenset(
            {
                TaskStatus.DONE,
                TaskStatus.FAILED,
                TaskStatus.CANCELLED,
                TaskStatus.SCHEDULED,
                TaskStatus.PENDING,
                TaskStatus.BLOCKED,
            }
        ),
        TaskStatus.DONE: frozenset(),
        # What an operator asks for, never what time does: a failed task stays failed.
        TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.SCHEDULED, TaskStatus.BLOCKED}),
        TaskStatus.CANCELLED: frozenset({TaskStatus.PENDING, TaskStatus.SCHEDULED, TaskStatus.BLOCKED}),
    },
)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue. What is None is taken from the handler's stored defaults, then from the fleet's.

    Attributes:
        task: the handler's name.
        payload_json: a JSON object as text (see `jsontext.encode`).
        queue: the queue; default `default`.
        priority: higher first; default 0.
        delay: seconds from now before it may run.
        at: absolute time before which it may not run (excludes `delay`).
        requires: capabilities that a worker must offer.
        max_attempts: attempts that count, at most.
        timeout: seconds per attempt; None from nowhere means none.
        retry: when to try again.
        dedupe_key: at most one open task of this handler with this key.
        idempotency_key: at most one task of this handler with this key, until it is pruned.
    """

    task: str
    payload_json: str = "{}"
    queue: str | None = None
    priority: int = 0
    delay: float | None = None
    at: datetime | None = None
    requires: Mapping[str, float] | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    retry: RetryPolicy | None = None
    dedupe_key: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class HandlerDefaults:
    """A row of `task_handler`: what a handler's tasks get when the enqueuer says nothing.

    Attributes are those of `NewTask`; `signature` is for people.
    """

    name: str
    queue: str | None = None
    requires: Mapping[str, float] | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    retry: RetryPolicy | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What enqueuing did.

    Attributes:
        ids: one task id per input, in input order.
        existing: the subset of ids that a dedupe or idempotency key met.
    """

    ids: tuple[int, ...]
    existing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fence:
    """What every write about a claimed task names: the claim itself.

    Attributes:
        task_id: the task.
        claim_token: the token of the claim; it rises with every claim of the task.
    """

    task_id: int
    claim_token: int


@dataclass(frozen=True, slots=True)
class ClaimedTask:
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

    @property
    def fence(self) -> Fence:
        """The fence for every write about this claim."""
        return Fence(self.task_id, self.claim_token)

    @property
    def has_attempts_left(self) -> bool:
        """Whether a failed attempt may be followed by another."""
        return self.attempt < self.max_attempts


@dataclass(frozen=True, slots=True)
class Finish:
    """How one claimed execution ended, ready to be written with its fence.

    Attributes:
        fence: the claim.
        status: `done`, `failed`, or `scheduled` (to be tried again).
        result_json: the result as JSON text, when done.
        error: one line, when not done.
        error_kind: the exception's name, or `timeout`, `killed`, ...
        traceback: for people.
        retry_in: seconds until the next attempt, when scheduled.
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
    """

    kind: str
    error: str
    traceback: str | None = None
    final: bool = False


def done(claimed: ClaimedTask, result_json: str | None, seconds: float, ago: float) -> Finish:
    """Return the record of a success."""
    return Finish(claimed.fence, TaskStatus.DONE, result_json=result_json, seconds=seconds, started_seconds_ago=ago)


def failed(claimed: ClaimedTask, failure: Failure, seconds: float, ago: float, random: Callable[[], float]) -> Finish:
    """Return the record of a failure: to be tried again while attempts remain, else final."""
    retry = claimed.has_attempts_left and not failure.final
    delay = None
    if retry:
        policy = RetryPolicy.from_json(_loads(claimed.retry_json))
        delay = policy.delay(claimed.attempt, random)
    return Finish(
        claimed.fence,
        TaskStatus.SCHEDULED if retry else TaskStatus.FAILED,
        error=printable(failure.error, MAX_ERROR_CHARACTERS),
        error_kind=printable(failure.kind, 100),
        traceback=failure.traceback and printable(failure.traceback, MAX_TRACEBACK_CHARACTERS),
        retry_in=delay,
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
class TaskRecord:
    """A row of `work_queue`, its payload joined."""

    task_id: int
    task: str
    queue: str
    status: TaskStatus
    priority: int
    payload_json: str | None
    result_json: str | None
    error: str | None
    error_kind: str | None
    traceback: str | None
    attempt: int
    max_attempts: int
    interruptions: int
    claim_token: int
    worker: str | None
    incarnation: str | None
    requires: Mapping[str, float]
    timeout_seconds: float | None
    progress: float | None
    progress_text: str | None
    dedupe_key: str | None
    idempotency_key: str | None
    created_at: datetime
    available_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list, newest first.

    Attributes:
        status: any of these; empty means all.
        queue: in this queue.
        task: of this handler.
        limit: at most so many.
        before_id: with a smaller id than this (for paging).
    """

    status: tuple[TaskStatus, ...] = ()
    queue: str | None = None
    task: str | None = None
    limit: int = 100
    before_id: int | None = None


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: the incarnation that every claim is bound to.

    Attributes:
        worker_id: the worker.
        incarnation: its life.
        lease_seconds: its lease (a task that it failed is left to others for that long).
    """

    worker_id: str
    incarnation: str
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """What a claim got.

    Attributes:
        tasks: the claimed tasks, in claim order; may be empty.
        accepted: of a `finish_and_claim`, the fences whose finish was written; the others had lost their claim.
        max_lane_id: the newest lane, so that the worker knows whether to learn lanes.
        status: the claimant's status as stored, None when the registry does not know this incarnation.
    """

    tasks: tuple[ClaimedTask, ...] = ()
    accepted: frozenset[Fence] = field(default_factory=frozenset)
    max_lane_id: int = 0
    status: str | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many tasks of one handler in one queue are in each open state, and since when the oldest waits."""

    queue: str
    task: str
    requires: Mapping[str, float]
    blocked: int = 0
    scheduled: int = 0
    pending: int = 0
    running: int = 0
    oldest_pending_at: datetime | None = None
