"""Records and rows as JSON objects: the columns' names, `*_json` columns as values, times as stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from fleet.domain.lanes import named
from fleet.domain.metrics import number

if TYPE_CHECKING:
    from datetime import datetime

    from fleet.domain.execution import AttemptRecord
    from fleet.domain.group import GroupRecord
    from fleet.domain.task import ParentResult, TaskRecord


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view's row as a JSON object: `payload_json` becomes `payload`."""
    return {name.removesuffix("_json"): _value(name, item) for name, item in row.items()}


def _value(name: str, item: Any) -> Any:
    if name.endswith("_json"):
        return value_of(item)
    return float(item) if isinstance(item, Decimal) else item


def offers(value: Any) -> str | None:
    """Return the quantities of an object that a row holds, for people; what is no quantity is left out."""
    if not isinstance(value, dict):
        return None
    return named({name: much for name, item in value.items() if (much := number(item)) is not None}) or None


def value_of(text: Any) -> Any:
    """Return the value of JSON text; what is none (a row may hold anything) is returned as it is."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def task_row(task: TaskRecord, now: datetime) -> dict[str, Any]:
    """Return a task with the columns of `fleet_tasks`, without payload, result and traceback."""
    end = task.finished_at or now
    return {
        "id": task.task_id,
        "task": task.task,
        "queue": task.queue,
        "status": task.status.value,
        "priority": task.priority,
        "attempt": task.attempt,
        "max_attempts": task.max_attempts,
        "interruptions": task.interruptions,
        "worker": task.worker,
        "progress": task.progress,
        "progress_text": task.progress_text,
        "error": task.error,
        "error_kind": task.error_kind,
        "created_at": task.created_at,
        "available_at": task.available_at,
        "claimed_at": task.claimed_at,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "age_seconds": round((now - task.created_at).total_seconds(), 1),
        "run_seconds": None if task.started_at is None else round((end - task.started_at).total_seconds(), 3),
        "requires": dict(task.requires),
        "timeout_seconds": task.timeout_seconds,
        "dedupe_key": task.dedupe_key,
        "idempotency_key": task.idempotency_key,
        "claim_token": task.claim_token,
        "incarnation": task.incarnation,
        "blocked_reason": task.blocked_reason,
        "deadline_at": task.deadline_at,
        "concurrency_key": task.concurrency_key,
        "dedupe_scope": task.dedupe_scope,
        "batch_id": task.batch_id,
        "parent_id": task.parent_id,
        "cancel_requested": task.cancel_requested,
        "avoid_worker": task.avoid_worker,
        "prefers": dict(task.prefers),
    }


def task_document(task: TaskRecord, now: datetime) -> dict[str, Any]:
    """Return all of a task."""
    return {
        **task_row(task, now),
        "payload": value_of(task.payload_json),
        "result": value_of(task.result_json),
        "traceback": task.traceback,
    }


def parent_row(parent: ParentResult) -> dict[str, Any]:
    """Return a task that another depends on."""
    return {"id": parent.task_id, "task": parent.task, "status": parent.status.value, "error": parent.error}


def attempt_row(attempt: AttemptRecord) -> dict[str, Any]:
    """Return an execution that did not succeed, with the columns of `work_attempt`."""
    return {
        "task_id": attempt.task_id,
        "claim_token": attempt.claim_token,
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "incarnation": attempt.incarnation,
        "outcome": attempt.outcome.value,
        "error": attempt.error,
        "error_kind": attempt.error_kind,
        "traceback": attempt.traceback,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "peak_memory_mb": attempt.peak_memory_mb,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
    }


def group_row(group: GroupRecord) -> dict[str, Any]:
    """Return a group with the columns of `worker_group`."""
    return {
        "group_id": group.group_id,
        "pool": group.pool,
        "status": group.status.value,
        "target_size": group.target_size,
        "adapter_id": group.adapter_id,
        "capabilities": dict(group.capabilities),
        "host": group.process.host,
        "pid": group.process.pid,
        "created_at": group.created_at,
        "contacted_at": group.contacted_at,
        "boot_deadline_at": group.boot_deadline_at,
        "last_heartbeat": group.last_heartbeat,
        "lease_seconds": group.lease_seconds,
        "lease_expires_at": group.lease_expires_at,
        "exit_code": group.exit_code,
        "error": group.error,
        "log_path": group.log_path,
        "decision_id": group.decision_id,
        "reference": group.reference,
    }
