"""The tables. Names and meanings are a public contract: `sqlite3` and programs in other languages read them.

Every status, time and JSON column has a CHECK; every constraint has a name, so that a later migration can change it.
There is no foreign key from task to worker (it would stop the pruning of workers), no CASCADE, and no uniqueness over
pid or host. At most two indexes of `work_queue` are touched between pending and done.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    text,
)

from fleet.domain.group import CommandKind, CommandStatus, GroupStatus
from fleet.domain.task import OPEN_STATUSES, TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.storage.types import TIME_PATTERN, BigId, JsonText, UtcTime

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _values(states: type[StrEnum] | Iterable[StrEnum]) -> str:
    return ", ".join(f"'{state}'" for state in states)


def _status(states: type[StrEnum], default: StrEnum | None = None, name: str = "status") -> Column[Any]:
    column: Column[Any] = Column(name, String, nullable=False, server_default=default)
    column.info["check"] = f"{name} IN ({_values(states)})"
    return column


def _table(name: str, *columns: Any, **options: Any) -> Table:
    """Make a table and the CHECKs that its columns imply."""
    checks = []
    for column in columns:
        if not isinstance(column, Column):
            continue
        key = column.name
        if "check" in column.info:
            checks.append(CheckConstraint(column.info["check"], name=key))
        elif isinstance(column.type, UtcTime):
            guard = "" if not column.nullable else f"{key} IS NULL OR "
            checks.append(CheckConstraint(f"{guard}{key} GLOB '{TIME_PATTERN}'", name=key).ddl_if(dialect="sqlite"))
        elif isinstance(column.type, JsonText):
            guard = "" if not column.nullable else f"{key} IS NULL OR "
            checks.append(CheckConstraint(f"{guard}json_valid({key})", name=key).ddl_if(dialect="sqlite"))
    return Table(name, metadata, *columns, *checks, **options)


def _process_columns() -> list[Column[Any]]:
    """Return which process it is: see `ProcessIdentity`."""
    return [
        Column("host", String),
        Column("boot_id", String),
        Column("pid_namespace", String),
        Column("pid", Integer),
        Column("pid_start_ticks", BigId),
    ]


worker_registry = _table(
    "worker_registry",
    Column("worker_id", String, primary_key=True),
    Column("incarnation", String, nullable=False),
    Column("pool", String, nullable=False, server_default="default"),
    _status(WorkerStatus, WorkerStatus.ACTIVE),
    Column("started_at", UtcTime, nullable=False),
    Column("last_heartbeat", UtcTime, nullable=False),
    Column("heartbeat_interval_seconds", Float, nullable=False),
    Column("lease_seconds", Float, nullable=False),
    Column("lease_expires_at", UtcTime, nullable=False),
    Column("current_task_id", BigId),
    Column("slots", Integer, nullable=False, server_default=text("1")),
    *_process_columns(),
    Column("group_id", String),
    Column("adapter_id", String),
    Column("capabilities_json", JsonText, nullable=False, server_default="{}"),
    Column("queues_json", JsonText, nullable=False, server_default="[]"),
    Column("handlers_json", JsonText, nullable=False, server_default="[]"),
    Column("resources_json", JsonText),
    Column("version", String),
    Column("metadata_json", JsonText, nullable=False, server_default="{}"),
    Column("tasks_done", BigId, nullable=False, server_default=text("0")),
    Column("tasks_failed", BigId, nullable=False, server_default=text("0")),
    Column("idle_since", UtcTime),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("terminating_at", UtcTime),
    Column("drain_deadline_at", UtcTime),
    Column("stopped_at", UtcTime),
    Column("stop_reason", String),
    Column("log_path", String),
    CheckConstraint("lease_seconds >= 3 * heartbeat_interval_seconds", name="lease"),
    CheckConstraint("heartbeat_interval_seconds > 0", name="heartbeat"),
    CheckConstraint("slots >= 1", name="slots"),
)

claim_lane = _table(
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

work_queue = _table(
    "work_queue",
    Column("id", BigId, primary_key=True),
    Column("lane_id", BigId, ForeignKey("claim_lane.lane_id"), nullable=False),
    Column("queue", String, nullable=False, server_default="default"),
    Column("task", String, nullable=False),
    # NULL: the payload is in work_payload.
    Column("payload_json", JsonText),
    _status(TaskStatus, TaskStatus.PENDING),
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
    CheckConstraint("dedupe_scope IS NULL OR dedupe_scope IN ('open', 'waiting')", name="dedupe_scope"),
    CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
    CheckConstraint("status <> 'running' OR (worker IS NOT NULL AND incarnation IS NOT NULL)", name="holder"),
    CheckConstraint("status <> 'scheduled' OR available_at IS NOT NULL", name="scheduled"),
    sqlite_autoincrement=True,
)

_BLOCKED = text("status = 'blocked'")
_OPEN = text(f"status IN ({_values(OPEN_STATUSES)}) AND dedupe_key IS NOT NULL")
_PENDING = text("status = 'pending'")
_RUNNING = text("status = 'running'")
_SCHEDULED = text("status = 'scheduled'")
_KEYED = text("idempotency_key IS NOT NULL")

Index(
    "ix_work_queue_claim",
    work_queue.c.lane_id,
    work_queue.c.rank,
    work_queue.c.id,
    sqlite_where=_PENDING,
    postgresql_where=_PENDING,
)
Index("ix_work_queue_running", work_queue.c.worker, sqlite_where=_RUNNING, postgresql_where=_RUNNING)
Index("ix_work_queue_due", work_queue.c.available_at, sqlite_where=_SCHEDULED, postgresql_where=_SCHEDULED)
Index(
    "ix_work_queue_blocked",
    work_queue.c.lane_id,
    work_queue.c.rank,
    work_queue.c.id,
    sqlite_where=_BLOCKED,
    postgresql_where=_BLOCKED,
)
Index(
    "uq_work_queue_dedupe",
    work_queue.c.task,
    work_queue.c.dedupe_key,
    unique=True,
    sqlite_where=_OPEN,
    postgresql_where=_OPEN,
)
Index(
    "uq_work_queue_idempotency",
    work_queue.c.task,
    work_queue.c.idempotency_key,
    unique=True,
    sqlite_where=_KEYED,
    postgresql_where=_KEYED,
)

work_payload = _table(
    "work_payload",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("payload_json", JsonText, nullable=False),
)

task_handler = _table(
    "task_handler",
    Column("name", String, primary_key=True),
    Column("queue", String),
    Column("requires_json", JsonText),
    Column("max_attempts", Integer),
    Column("timeout_seconds", Float),
    Column("retry_json", JsonText),
    Column("signature", String),
    Column("updated_at", UtcTime, nullable=False),
    CheckConstraint("max_attempts IS NULL OR max_attempts >= 1", name="max_attempts"),
    CheckConstraint("timeout_seconds IS NULL OR timeout_seconds > 0", name="timeout"),
)

work_minute = _table(
    "work_minute",
    Column("minute", UtcTime, primary_key=True),
    Column("queue", String, primary_key=True),
    Column("task", String, primary_key=True),
    Column("done", BigId, nullable=False, server_default=text("0")),
    Column("failed", BigId, nullable=False, server_default=text("0")),
    Column("busy_seconds", Float, nullable=False, server_default=text("0")),
    Column("max_seconds", Float, nullable=False, server_default=text("0")),
)

scheduler = _table(
    "scheduler",
    Column("pool", String, primary_key=True),
    Column("policy", String, nullable=False, server_default="no"),
    Column("settings_json", JsonText, nullable=False, server_default="{}"),
    Column("version", BigId, nullable=False, server_default=text("1")),
    Column("desired_workers", Integer),
    Column("min_workers", Integer, nullable=False, server_default=text("0")),
    Column("max_workers", Integer),
    Column("max_launch_per_cycle", Integer, nullable=False, server_default=text("100")),
    Column("template_json", JsonText),
    Column("lease_holder_json", JsonText),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("lease_expires_at", UtcTime),
    Column("offers_json", JsonText),
    Column("last_cycle_at", UtcTime),
    Column("last_scale_up_at", UtcTime),
    Column("last_scale_down_at", UtcTime),
    CheckConstraint("min_workers >= 0", name="min_workers"),
    CheckConstraint("max_workers IS NULL OR max_workers >= min_workers", name="max_workers"),
    CheckConstraint("max_launch_per_cycle >= 1", name="max_launch"),
)

worker_adapter = _table(
    "worker_adapter",
    Column("adapter_id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("host", String),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("max_worker_groups", Integer),
    Column("workers_per_group", Integer),
    Column("base_capabilities_json", JsonText, nullable=False, server_default="{}"),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("last_heartbeat", UtcTime),
    Column("lease_expires_at", UtcTime),
    Column("status", String, nullable=False, server_default="active", info={"check": "status IN ('active', 'paused')"}),
    Column("backoff_until", UtcTime),
    Column("consecutive_failures", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("consecutive_failures >= 0", name="failures"),
)

worker_group = _table(
    "worker_group",
    Column("group_id", String, primary_key=True),
    Column("pool", String, nullable=False),
    Column("adapter_id", String),
    Column("capabilities_json", JsonText, nullable=False, server_default="{}"),
    Column("target_size", Integer, nullable=False),
    _status(GroupStatus, GroupStatus.REQUESTED),
    Column("launch_token", String, nullable=False),
    *_process_columns(),
    Column("created_at", UtcTime, nullable=False),
    Column("contacted_at", UtcTime),
    Column("boot_deadline_at", UtcTime),
    Column("last_heartbeat", UtcTime),
    Column("lease_seconds", Float, nullable=False, server_default=text("20")),
    Column("lease_expires_at", UtcTime),
    Column("stopped_at", UtcTime),
    Column("exit_code", Integer),
    Column("error", String),
    Column("log_path", String),
    Column("decision_id", BigId),
    CheckConstraint("target_size >= 0", name="target_size"),
    UniqueConstraint("launch_token"),
)

Index(
    "ix_worker_group_live",
    worker_group.c.pool,
    sqlite_where=text("status NOT IN ('stopped', 'failed')"),
    postgresql_where=text("status NOT IN ('stopped', 'failed')"),
)

adapter_command = _table(
    "adapter_command",
    Column("command_id", BigId, primary_key=True),
    Column("adapter_id", String, nullable=False),
    Column("pool", String, nullable=False),
    _status(CommandKind, name="kind"),
    Column("arguments_json", JsonText, nullable=False, server_default="{}"),
    _status(CommandStatus, CommandStatus.PENDING),
    Column("taken_by_json", JsonText),
    Column("scheduler_epoch", BigId, nullable=False, server_default=text("0")),
    Column("adapter_epoch", BigId),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("taken_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("reply_json", JsonText),
    Column("error_code", Integer),
    Column("error_message", String),
    sqlite_autoincrement=True,
)

Index(
    "ix_adapter_command_open",
    adapter_command.c.adapter_id,
    sqlite_where=text("status IN ('pending', 'taken')"),
    postgresql_where=text("status IN ('pending', 'taken')"),
)

scaling_decision = _table(
    "scaling_decision",
    Column("decision_id", BigId, primary_key=True),
    Column("pool", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("repeated", BigId, nullable=False, server_default=text("0")),
    Column("scheduler_epoch", BigId, nullable=False),
    Column("settings_version", BigId, nullable=False),
    Column("policy", String, nullable=False),
    Column("supply", Integer, nullable=False),
    Column("ready", Integer, nullable=False),
    Column("launching", Integer, nullable=False),
    Column("draining", Integer, nullable=False),
    Column("waiting", BigId, nullable=False),
    Column("running", BigId, nullable=False),
    Column("advised", Integer, nullable=False),
    Column("desired", Integer, nullable=False),
    Column("reasons_json", JsonText, nullable=False, server_default="[]"),
    Column("actions_json", JsonText, nullable=False, server_default="{}"),
    sqlite_autoincrement=True,
)

Index("ix_scaling_decision_pool", scaling_decision.c.pool, scaling_decision.c.decision_id)

maintenance = _table(
    "maintenance",
    Column("id", Integer, primary_key=True, autoincrement=False, info={"check": "id = 1"}),
    Column("holder_json", JsonText),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("lease_expires_at", UtcTime),
    Column("last_pass_at", UtcTime),
    Column("gap_started_at", UtcTime),
    Column("gap_ended_at", UtcTime),
    Column("prune_cursor", BigId, nullable=False, server_default=text("0")),
)

fleet_event = _table(
    "fleet_event",
    Column("event_id", BigId, primary_key=True),
    Column("at", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("text", String, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)

fleet_meta = _table(
    "fleet_meta",
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)
