"""Tasks: what is enqueued, what is stored, and the life cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from fleet.domain.lifecycle import LifeCycle
from fleet.domain.retry import RetryPolicy

INLINE_PAYLOAD_BYTES = 2048
MAX_ERROR_CHARACTERS = 4_000
MAX_TRACEBACK_CHARACTERS = 20_000
MAX_BATCH = 500
"""The most tasks that one claim brings: a worker's record in shared memory has room for so many."""

SHARED_BATCH = 100
"""As many where others wait meanwhile: for the lock of a file, or for their fair share."""

SHELL_TASK = "fleet.shell"
"""The handler that executes shell commands, where a worker is allowed to."""


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


DedupeScope = Literal["open", "waiting"]


class ParentPolicy(StrEnum):
    """What becomes of a task when one that it depends on ends without success."""

    CANCEL = "cancel"
    FAIL = "fail"
    RUN = "run"


class BlockedReason(StrEnum):
    """What a blocked task waits for; `rate` is why a scheduled one waits for its key's next start."""

    PARENTS = "parents"
    LIMIT = "limit"
    BATCH = "batch"
    RATE = "rate"


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
        dedupe_scope: `open` counts a running task as open; `waiting` lets one wait beside one that runs.
        idempotency_key: at most one task of this handler with this key, until it is pruned.
        deadline: a task that has not begun by then ends as failed, and no attempt is made after it.
        prefers: capabilities for which it waits a moment: any worker takes it after that.
        concurrency_key: the key by which limits count it.
        depends_on: ids of tasks that must end first, or `ref`s of tasks enqueued before it in the same call.
        on_parent_failure: what becomes of it when one of those ends without success.
        ref: a name by which later tasks of the same call may depend on it.
        batch_id: the open batch that it belongs to.
        parent_id: the task during whose execution it was enqueued.
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
    dedupe_scope: DedupeScope = "open"
    idempotency_key: str | None = None
    deadline: datetime | None = None
    prefers: Mapping[str, float] | None = None
    concurrency_key: str | None = None
    depends_on: tuple[int | str, ...] = ()
    on_parent_failure: ParentPolicy = ParentPolicy.CANCEL
    ref: str | None = None
    batch_id: str | None = None
    parent_id: int | None = None


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

    @property
    def met(self) -> tuple[bool, ...]:
        """Of each input, whether a key met a task that was there; of equal inputs the first may have made it."""
        if not self.existing:
            return (False,) * len(self.ids)
        left = Counter(self.existing)
        flags = []
        for task_id in reversed(self.ids):
            flags.append(left[task_id] > 0)
            left[task_id] -= 1
        return tuple(reversed(flags))


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
    blocked_reason: str | None = None
    deadline_at: datetime | None = None
    dedupe_scope: str | None = None
    concurrency_key: str | None = None
    prefers: Mapping[str, float] = field(default_factory=dict)
    batch_id: str | None = None
    parent_id: int | None = None
    cancel_requested: bool = False
    avoid_worker: str | None = None
    assigned_worker: str = ""


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


@dataclass(frozen=True, slots=True)
class ParentResult:
    """A task that another depends on, as the one that depends on it sees it.

    Attributes:
        task_id: the parent.
        task: its handler's name.
        status: its status now.
        result_json: its result as JSON text, once it is done.
        error: one line, when it ended without success.
    """

    task_id: int
    task: str
    status: TaskStatus
    result_json: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operator's order did to one task.

    Attributes:
        task_id: the task.
        before: its status as it was found; None when there is no such task.
        after: its status now.
        text: one line for people.
        obeyed: whether the order is carried out, or will be.
    """

    task_id: int
    before: TaskStatus | None
    after: TaskStatus | None
    text: str
    obeyed: bool
