"""Tasks, their payloads, and the lanes that workers claim from.

At most two indexes of `work_queue` are touched between pending and done.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    UniqueConstraint,
    text,
)

from fleet.domain.task import OPEN_STATUSES, TaskStatus
from fleet.storage.tables.columns import status, table, values_of
from fleet.storage.types import BigId, JsonText, UtcTime

claim_lane = table(
    "claim_lane",
    Column("lane_id", BigId, primary_key=True),
    Column("queue", String, nullable=False),
    Column("task", String, nullable=False),
    Column("capability_key", String, nullable=False, server_default="{}"),
    Column("assigned_worker", String, nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
    UniqueConstraint("queue", "task", "capability_key", "assigned_worker"),
    sqlite_autoincrement=True,
)

work_queue = table(
    "work_queue",
    Column("id", BigId, primary_key=True),
    Column("lane_id", BigId, ForeignKey("claim_lane.lane_id"), nullable=False),
    Column("queue", String, nullable=False, server_default="default"),
    Column("task", String, nullable=False),
    # NULL: the payload is in work_payload.
    Column("payload_json", JsonText),
    status(TaskStatus, TaskStatus.PENDING),
    Column("blocked_reason", String),
    Column("rank", BigId, nullable=False, server_default=text("0")),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("available_at", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Column("claimed_at", UtcTime),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("deadline_at", UtcTime),
    Column("worker", String),
    Column("incarnation", String),
    Column("claim_token", BigId, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False, server_default=text("3")),
    Column("interruptions", Integer, nullable=False, server_default=text("0")),
    Column("retry_json", JsonText),
    Column("timeout_seconds", Float),
    Column("dedupe_key", String),
    Column("dedupe_scope", String),
    Column("idempotency_key", String),
    Column("concurrency_key", String),
    Column("requires_json", JsonText),
    Column("prefers_json", JsonText),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("avoid_worker", String),
    Column("batch_id", String),
    Column("parent_id", BigId),
    Column("progress", Float),
    Column("progress_text", String),
    Column("metrics_json", JsonText),
    Column("result_json", JsonText),
    Column("error", String),
    Column("error_kind", String),
    Column("traceback", String),
    CheckConstraint("attempt >= 0 AND interruptions >= 0 AND claim_token >= 0", name="counts"),
    CheckConstraint("max_attempts >= 1", name="max_attempts"),
    CheckConstraint("timeout_seconds IS NULL OR timeout_seconds > 0", name="timeout"),
    CheckConstraint("dedupe_scope IS NULL OR dedupe_scope = 'open' OR dedupe_scope = 'waiting'", name="dedupe_scope"),
    CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
    CheckConstraint("status <> 'running' OR (worker IS NOT NULL AND incarnation IS NOT NULL)", name="holder"),
    CheckConstraint("status <> 'scheduled' OR available_at IS NOT NULL", name="scheduled"),
    sqlite_autoincrement=True,
)

_WAITING = (TaskStatus.BLOCKED, TaskStatus.SCHEDULED, TaskStatus.PENDING)
DEDUPE_OPEN = f"(status IN ({values_of(_WAITING)}) OR (status = 'running' AND dedupe_scope = 'open'))"
"""Which tasks hold their dedupe key; a running one of the scope `waiting` has let go of it."""


def _queue_index(name: str, *columns: str, where: str, unique: bool = False) -> None:
    condition = text(where)
    Index(
        name,
        *(work_queue.c[column] for column in columns),
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


_queue_index("ix_work_queue_claim", "lane_id", "rank", "id", where="status = 'pending'")
_queue_index("ix_work_queue_running", "worker", where="status = 'running'")
_queue_index("ix_work_queue_due", "available_at", "lane_id", where="status = 'scheduled'")
_queue_index("ix_work_queue_blocked", "lane_id", "id", where="status = 'blocked'")
# These hold only tasks that have a key, a deadline or a batch: the others pay nothing for them.
_queue_index(
    "ix_work_queue_key",
    "concurrency_key",
    "status",
    "blocked_reason",
    "rank",
    "id",
    where=f"concurrency_key IS NOT NULL AND status IN ({values_of(OPEN_STATUSES)})",
)
_queue_index(
    "ix_work_queue_deadline", "deadline_at", where=f"deadline_at IS NOT NULL AND status IN ({values_of(_WAITING)})"
)
# The dead letters: found and retried however long the history is.
_queue_index("ix_work_queue_failed", "id", where="status = 'failed'")
_queue_index("ix_work_queue_batch", "batch_id", where="batch_id IS NOT NULL")
_queue_index(
    "ix_work_queue_batch_open", "batch_id", where=f"batch_id IS NOT NULL AND status IN ({values_of(OPEN_STATUSES)})"
)
_queue_index(
    "uq_work_queue_dedupe", "task", "dedupe_key", where=f"dedupe_key IS NOT NULL AND {DEDUPE_OPEN}", unique=True
)
_queue_index("uq_work_queue_idempotency", "task", "idempotency_key", where="idempotency_key IS NOT NULL", unique=True)

work_payload = table(
    "work_payload",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("payload_json", JsonText, nullable=False),
)
