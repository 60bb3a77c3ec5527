"""From a task to its row: the handler's defaults, lane, rank, and the status with which it begins."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.lanes import capability_key
from fleet.domain.rank import rank
from fleet.domain.retry import DEFAULT_MAX_ATTEMPTS
from fleet.domain.task import BlockedReason, HandlerDefaults, NewTask, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.meta import age_ms
from fleet.storage.queue.entering import entrance
from fleet.storage.queue.handlers import defaults_of
from fleet.storage.queue.interning import lane_of
from fleet.storage.queue.limits import KeyGate
from fleet.storage.rows import dumps
from fleet.storage.sql import Row


def likeness(task: NewTask) -> tuple[Any, ...]:
    """Return what decides which of a task's columns come of its handler's defaults, and its lane."""
    return (
        task.task,
        task.queue,
        task.max_attempts,
        task.timeout,
        task.retry,
        None if task.requires is None else tuple(sorted(task.requires.items())),
        None if task.prefers is None else tuple(sorted(task.prefers.items())),
    )


class Entry:
    """The rows of one call's tasks.

    Args:
        transaction: the open transaction.
        names: the handlers' names.
        blocked: what all of the tasks wait for, until somebody lets them in.

    Attributes:
        gate: the limits in force.
        age_ms: how much waiting one step of priority is worth, in milliseconds.
    """

    def __init__(self, transaction: Transaction, names: Iterable[str], blocked: BlockedReason | None) -> None:
        self.gate = KeyGate(transaction)
        self._transaction = transaction
        self._defaults = defaults_of(transaction, names)
        self._blocked = blocked
        self.age_ms = age_ms(transaction)
        self._lanes: dict[tuple[str, str, str], int] = {}
        # Most tasks of one call are alike: what they share is worked out once.
        self._shared: dict[Any, Row] = {}

    def row(self, task: NewTask) -> Row:
        """Return the task's row, without its id and payload."""
        now = self._transaction.now
        available_at = task.at if task.delay is None else now + timedelta(seconds=task.delay)
        if available_at is not None and available_at <= now:
            available_at = None
        status, reason = self._entrance(task, available_at)
        return {
            **self._alike(task),
            "status": status,
            "blocked_reason": reason,
            "rank": rank(task.priority, now, self.age_ms),
            "priority": task.priority,
            "available_at": available_at,
            "created_at": now,
            "deadline_at": task.deadline,
            "dedupe_key": task.dedupe_key,
            "dedupe_scope": task.dedupe_scope if task.dedupe_key else None,
            "idempotency_key": task.idempotency_key,
            "concurrency_key": task.concurrency_key,
            "batch_id": task.batch_id,
            "parent_id": task.parent_id,
        }

    def _entrance(self, task: NewTask, available_at: datetime | None) -> tuple[str, str | None]:
        if self._blocked is not None:
            return TaskStatus.BLOCKED.value, self._blocked.value
        if task.depends_on:
            return TaskStatus.BLOCKED.value, BlockedReason.PARENTS.value
        status, reason = entrance(self.gate, available_at, task.concurrency_key, self._transaction.now)
        return status.value, None if reason is None else reason.value

    def _alike(self, task: NewTask) -> Row:
        """Return the columns that come of the handler's defaults."""
        key = likeness(task)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._with_defaults(task)
        return found

    def _with_defaults(self, task: NewTask) -> Row:
        defaults = self._defaults.get(task.task) or HandlerDefaults(task.task)
        queue = task.queue or defaults.queue or "default"
        requires = task.requires if task.requires is not None else (defaults.requires or {})
        retry = task.retry or defaults.retry
        key = capability_key(requires, task.prefers)
        return {
            "lane_id": lane_of(self._transaction, (queue, task.task, key), self._lanes),
            "capability_key": key,
            "queue": queue,
            "task": task.task,
            "max_attempts": next(
                n for n in (task.max_attempts, defaults.max_attempts, DEFAULT_MAX_ATTEMPTS) if n is not None
            ),
            "retry_json": dumps(retry.as_json()) if retry else None,
            "timeout_seconds": task.timeout if task.timeout is not None else defaults.timeout,
            "requires_json": json.dumps(dict(requires), sort_keys=True) if requires else None,
            "prefers_json": json.dumps(dict(task.prefers), sort_keys=True) if task.prefers else None,
        }
