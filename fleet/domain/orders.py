"""Orders to one worker, as rows: what they ask for, and how long they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.group import CommandStatus
from fleet.domain.task import TaskStatus

ORDER_LIFETIME = 60.0
"""Seconds until an order that nobody took is void: keepers take theirs with each beat, so three default leases."""

# `error_code` of an order that was refused: the numbers that HTTP gives to such reasons.
MALFORMED = 400
MISSING = 404
CONFLICT = 409
GONE = 410
INCAPABLE = 422
BUSY = 429


class OrderKind(StrEnum):
    """What an order asks of a worker."""

    RESTART = "restart"
    SET_TASK = "set_task"
    GET_STATUS = "get_status"
    CANCEL_TASK = "cancel_task"


OF_DRAINING = (OrderKind.GET_STATUS, OrderKind.CANCEL_TASK)
"""What may still be asked of a worker that claims nothing more."""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """A row of `worker_command`; its id is its idempotency token.

    Attributes:
        command_id: never used twice.
        worker_id: to whom.
        incarnation: to which life; another one of the same name never carries it out.
        kind: what is asked.
        arguments: with what.
        status: where it is in its life.
        taken_by: the keeper that took it.
        created_at: when it was given.
        expires_at: from then on it is carried out no more.
        taken_at: when it was taken.
        finished_at: when it was answered, or ended otherwise.
        reply: the answer; while the worker has still to claim the task of a `set_task`, the claim token that the task
            had when it was assigned.
        error_code: why it failed, as a number.
        error_message: why it failed, in words.
    """

    command_id: int
    worker_id: str
    incarnation: str
    kind: OrderKind
    arguments: Mapping[str, Any]
    status: CommandStatus
    taken_by: str | None
    created_at: datetime
    expires_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None
    reply: Mapping[str, Any] | None
    error_code: int | None
    error_message: str | None

    @property
    def task_id(self) -> int | None:
        """The task that it is about; None where the arguments name none, whoever wrote them."""
        value = self.arguments.get("task_id")
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None

    @property
    def assigned_token(self) -> int | None:
        """The claim token that the task had when it was assigned; None before that."""
        value = (self.reply or {}).get("claim_token")
        return value if self.kind is OrderKind.SET_TASK and isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """How an order is answered: it has failed where an error is named.

    Attributes:
        reply: the answer.
        error_code: why it failed, as a number.
        error_message: why it failed, in words.
    """

    reply: Mapping[str, Any] | None = None
    error_code: int | None = None
    error_message: str | None = None


def refusal(code: int, message: str) -> OrderAnswer:
    """Return the answer to an order that is not carried out."""
    return OrderAnswer(error_code=code, error_message=message)


@dataclass(frozen=True, slots=True)
class AssignableTask:
    """What decides whether a task can be assigned, and what has become of one that was.

    Attributes:
        task_id: the task.
        status: its status.
        claim_token: rises with every claim.
        worker: who claimed it last.
        queue: its queue.
        task: its handler.
        capability_key: the capability set of its lane.
        lane_id: its lane.
        assigned_worker: the only worker that may claim it, "" for any.
    """

    task_id: int
    status: TaskStatus
    claim_token: int
    worker: str | None
    queue: str
    task: str
    capability_key: str
    lane_id: int
    assigned_worker: str


def assignment_refusal(order: OrderRecord, task: AssignableTask | None) -> OrderAnswer | None:
    """Return why a task cannot be assigned as ordered; None when it can."""
    if order.task_id is None:
        return refusal(MALFORMED, 'the arguments name no task: give {"task_id": N}')
    if task is None:
        return refusal(MISSING, f"task {order.task_id}: there is no such task")
    if task.status is not TaskStatus.PENDING:
        where = f" at {task.worker}" if task.status is TaskStatus.RUNNING else ""
        return refusal(CONFLICT, f"task {task.task_id} is {task.status}{where}: only a pending one is assigned")
    if task.assigned_worker:
        return refusal(CONFLICT, f"task {task.task_id} is assigned to {task.assigned_worker} already")
    return None


def assignment_answer(order: OrderRecord, task: AssignableTask | None) -> OrderAnswer | None:
    """Return how the order ends whose task was assigned; None while the task waits for its worker.

    Whoever claims a task in an assigned lane is the worker that the lane names, so a risen token says enough.
    """
    if task is None:
        return refusal(MISSING, f"task {order.task_id} is gone")
    if task.claim_token > (order.assigned_token or 0):
        return OrderAnswer({"task_id": task.task_id, "claim_token": task.claim_token})
    if task.status is not TaskStatus.PENDING:
        return refusal(CONFLICT, f"task {task.task_id} is {task.status}: {order.worker_id} did not claim it")
    if task.assigned_worker != order.worker_id:
        return refusal(CONFLICT, f"task {task.task_id} was given back to all before {order.worker_id} claimed it")
    return None


def cancel_refusal(order: OrderRecord, task: AssignableTask | None) -> OrderAnswer:
    """Return why a worker does not end a task: it does not execute it."""
    if order.task_id is None:
        return refusal(MALFORMED, 'the arguments name no task: give {"task_id": N}')
    if task is None:
        return refusal(MISSING, f"task {order.task_id}: there is no such task")
    where = f"runs at {task.worker}" if task.status is TaskStatus.RUNNING else f"is {task.status}"
    return refusal(CONFLICT, f"task {task.task_id} {where}: this life of {order.worker_id} does not execute it")
