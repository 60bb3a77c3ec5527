"""From rows to records: how columns become the domain's values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fleet.domain.execution import ClaimedTask
from fleet.domain.group import (
    CommandKind,
    CommandRecord,
    CommandStatus,
    GroupRecord,
    GroupStatus,
)
from fleet.domain.jsontext import printable
from fleet.domain.lanes import Lane, prefers_of, requires_of
from fleet.domain.liveness import DEFAULT_LEASE, Gap, ProcessIdentity
from fleet.domain.metrics import number
from fleet.domain.task import TaskRecord, TaskStatus
from fleet.domain.worker import WorkerRecord, WorkerStatus
from fleet.storage.sql import Row, as_time, time_of

PROCESS = "host, boot_id, pid_namespace, pid, pid_start_ticks"


_MOST = 2**53


def loads(text: str | None) -> Any:
    """Return the value of a JSON column, None for NULL and for what a stranger made unreadable."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dumps(value: Any) -> str:
    """Return compact JSON text for a column."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def process_of(row: Row) -> ProcessIdentity:
    """Return the process that a row names."""
    return ProcessIdentity(row["host"], row["boot_id"], row["pid_namespace"], row["pid"], row["pid_start_ticks"])


def process_values(process: ProcessIdentity) -> dict[str, Any]:
    """Return a process as column values."""
    return {
        "host": process.host,
        "boot_id": process.boot_id,
        "pid_namespace": process.pid_namespace,
        "pid": process.pid,
        "pid_start_ticks": process.start_ticks,
    }


def process_json(process: ProcessIdentity, **more: Any) -> str:
    """Return a process as a JSON column's text."""
    return dumps({**process_values(process), **more})


def process_from_json(text: str | None) -> ProcessIdentity | None:
    """Return the process that a JSON column names."""
    value = loads(text)
    if not isinstance(value, dict):
        return None
    return process_of({key: value.get(key) for key in ("host", "boot_id", "pid_namespace", "pid", "pid_start_ticks")})


def whole(value: Any, least: int = 0) -> int | None:
    """Return a whole number of a column that strangers may have written, None for NULL and for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _MOST or value % 1:
        return None
    return int(value)


def quantities(text: str | None) -> dict[str, float]:
    """Return quantities by name in the object of a JSON column, without what is none."""
    return {name: much for name, value in mapping(text).items() if (much := number(value)) is not None}


def mapping(text: str | None) -> dict[str, Any]:
    """Return the object of a JSON column, empty for NULL and for what is no object."""
    value = loads(text)
    return value if isinstance(value, dict) else {}


@lru_cache(maxsize=256)
def names_of(text: str | None) -> tuple[str, ...]:
    """Return the names in the array of a JSON column, none for NULL and for what is no array."""
    value = loads(text)
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


_BARE_COLUMNS = f"""worker_id, incarnation, pool, status, started_at, last_heartbeat, heartbeat_interval_seconds,
    lease_seconds, lease_expires_at, current_task_id, slots, {PROCESS}, group_id, adapter_id, capabilities_json,
    queues_json, handlers_json, version, tasks_done, tasks_failed, idle_since, paused, terminating_at,
    drain_deadline_at, stopped_at, stop_reason, log_path, health"""
WORKER_COLUMNS = f"{_BARE_COLUMNS}, metadata_json, health_json"
UNMEASURED_COLUMNS = f"{_BARE_COLUMNS}, NULL AS metadata_json, NULL AS health_json"


def worker_of(row: Row) -> WorkerRecord:
    """Return a row of `worker_registry` as a record."""
    return WorkerRecord(
        worker_id=row["worker_id"],
        incarnation=row["incarnation"],
        pool=row["pool"],
        status=WorkerStatus(row["status"]),
        process=process_of(row),
        started_at=time_of(row["started_at"]),
        last_heartbeat=time_of(row["last_heartbeat"]),
        heartbeat_seconds=row["heartbeat_interval_seconds"],
        lease_seconds=row["lease_seconds"],
        lease_expires_at=time_of(row["lease_expires_at"]),
        slots=row["slots"],
        current_task_id=row["current_task_id"],
        group_id=row["group_id"],
        adapter_id=row["adapter_id"],
        capabilities=mapping(row["capabilities_json"]),
        queues=names_of(row["queues_json"]),
        handlers=names_of(row["handlers_json"]),
        tasks_done=row["tasks_done"],
        tasks_failed=row["tasks_failed"],
        idle_since=as_time(row["idle_since"]),
        paused=bool(row["paused"]),
        terminating_at=as_time(row["terminating_at"]),
        drain_deadline_at=as_time(row["drain_deadline_at"]),
        stopped_at=as_time(row["stopped_at"]),
        stop_reason=row["stop_reason"],
        version=row["version"],
        log_path=row["log_path"],
        metadata=mapping(row["metadata_json"]),
        health=row["health"],
        health_checks=mapping(row["health_json"]),
    )


GROUP_COLUMNS = f"""group_id, pool, adapter_id, capabilities_json, target_size, status, launch_token, {PROCESS},
    created_at, contacted_at, boot_deadline_at, last_heartbeat, lease_seconds, lease_expires_at, exit_code, error,
    log_path, decision_id, reference, stopped_at"""


def group_of(row: Row) -> GroupRecord:
    """Return a row of `worker_group` as a record."""
    return GroupRecord(
        group_id=row["group_id"],
        pool=row["pool"],
        adapter_id=row["adapter_id"],
        capabilities=mapping(row["capabilities_json"]),
        target_size=whole(row["target_size"]) or 0,
        status=GroupStatus(row["status"]),
        launch_token=row["launch_token"],
        process=process_of(row),
        created_at=time_of(row["created_at"]),
        contacted_at=as_time(row["contacted_at"]),
        boot_deadline_at=as_time(row["boot_deadline_at"]),
        last_heartbeat=as_time(row["last_heartbeat"]),
        lease_expires_at=as_time(row["lease_expires_at"]),
        lease_seconds=number(row["lease_seconds"]) or DEFAULT_LEASE,
        exit_code=row["exit_code"],
        error=row["error"],
        log_path=row["log_path"],
        decision_id=row["decision_id"],
        reference=row["reference"],
        stopped_at=as_time(row["stopped_at"]),
    )


def answer_values(reply: Mapping[str, Any] | None, error_code: int | None, error_message: str | None) -> Row:
    """Return the columns in which a command of either kind is answered: it has failed where an error is named."""
    failed = error_code is not None or error_message is not None
    return {
        "status": "failed" if failed else "succeeded",
        "reply": dumps(dict(reply)) if reply is not None else None,
        "error_code": error_code,
        "error_message": printable(error_message, 2_000) if error_message is not None else None,
    }


COMMAND_COLUMNS = """command_id, adapter_id, pool, kind, arguments_json, status, taken_by_json, scheduler_epoch,
    adapter_epoch, created_at, expires_at, taken_at, finished_at, reply_json, error_code, error_message"""


def command_of(row: Row) -> CommandRecord:
    """Return a row of `adapter_command` as a record."""
    return CommandRecord(
        command_id=row["command_id"],
        adapter_id=row["adapter_id"],
        pool=row["pool"],
        kind=CommandKind(row["kind"]),
        arguments=mapping(row["arguments_json"]),
        status=CommandStatus(row["status"]),
        taken_by=process_from_json(row["taken_by_json"]),
        scheduler_epoch=row["scheduler_epoch"],
        created_at=time_of(row["created_at"]),
        expires_at=time_of(row["expires_at"]),
        taken_at=as_time(row["taken_at"]),
        finished_at=as_time(row["finished_at"]),
        reply=loads(row["reply_json"]),
        error_code=row["error_code"],
        error_message=row["error_message"],
    )


TASK_COLUMNS = """q.id, q.task, q.queue, q.status, q.priority, q.error, q.error_kind, q.traceback, q.attempt,
    q.max_attempts, q.interruptions, q.claim_token, q.worker, q.incarnation, l.capability_key, q.timeout_seconds,
    q.progress, q.progress_text, q.dedupe_key, q.idempotency_key, q.created_at, q.available_at, q.claimed_at,
    q.started_at, q.finished_at, q.blocked_reason, q.deadline_at, q.dedupe_scope, q.concurrency_key, q.batch_id,
    q.parent_id, q.cancel_requested, q.avoid_worker, l.assigned_worker"""


def task_of(row: Row) -> TaskRecord:
    """Return a row of `work_queue`, joined with its lane, as a record."""
    return TaskRecord(
        task_id=row["id"],
        task=row["task"],
        queue=row["queue"],
        status=TaskStatus(row["status"]),
        priority=row["priority"],
        payload_json=row.get("payload_json"),
        result_json=row.get("result_json"),
        error=row["error"],
        error_kind=row["error_kind"],
        traceback=row["traceback"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        interruptions=row["interruptions"],
        claim_token=row["claim_token"],
        worker=row["worker"],
        incarnation=row["incarnation"],
        requires=requires_of(row["capability_key"]),
        timeout_seconds=row["timeout_seconds"],
        progress=row["progress"],
        progress_text=row["progress_text"],
        dedupe_key=row["dedupe_key"],
        idempotency_key=row["idempotency_key"],
        created_at=time_of(row["created_at"]),
        available_at=as_time(row["available_at"]),
        claimed_at=as_time(row["claimed_at"]),
        started_at=as_time(row["started_at"]),
        finished_at=as_time(row["finished_at"]),
        blocked_reason=row["blocked_reason"],
        deadline_at=as_time(row["deadline_at"]),
        dedupe_scope=row["dedupe_scope"],
        concurrency_key=row["concurrency_key"],
        prefers=prefers_of(row["capability_key"]),
        batch_id=row["batch_id"],
        parent_id=row["parent_id"],
        cancel_requested=bool(row["cancel_requested"]),
        avoid_worker=row["avoid_worker"],
        assigned_worker=row["assigned_worker"],
    )


CLAIMED_COLUMNS = """id, claim_token, task, queue, payload_json, attempt, max_attempts, interruptions, retry_json,
    timeout_seconds, deadline_at, lane_id"""


def claimed_of(row: tuple[Any, ...], payload: str) -> ClaimedTask:
    """Return what a claiming statement returned (CLAIMED_COLUMNS) as a claimed task."""
    task_id, token, task, queue, _, attempt, max_attempts, interruptions, retry, timeout, deadline, lane = row[:12]
    deadline_at = None if deadline is None else as_time(deadline)
    return ClaimedTask(
        task_id, token, task, queue, payload, attempt, max_attempts, interruptions, retry, timeout, deadline_at, lane
    )


def lane_of(row: tuple[Any, ...]) -> Lane:
    """Return (lane_id, queue, task, capability_key, assigned_worker) as a lane."""
    return Lane(row[0], row[1], row[2], requires_of(row[3]), row[4], prefers_of(row[3]))


def gap_of(row: Row | None) -> Gap | None:
    """Return the gap that the maintenance row names."""
    if row is None or row["gap_started_at"] is None or row["gap_ended_at"] is None:
        return None
    return Gap(time_of(row["gap_started_at"]), time_of(row["gap_ended_at"]))
