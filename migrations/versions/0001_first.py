"""The first schema: registry, queue, groups, adapters, commands, decisions, maintenance, events, and the views.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0001
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
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
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME_PATTERN = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z"


BigId = BigInteger().with_variant(Integer, "sqlite")
TIME = String().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")
JSON_TEXT = String().with_variant(postgresql.JSON(), "postgresql")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _values(states: Iterable[str]) -> str:
    return ", ".join(f"'{state}'" for state in states)


def _status(states: tuple[str, ...], default: str | None = None, name: str = "status") -> Column[Any]:
    column: Column[Any] = Column(name, String, nullable=False, server_default=default)
    column.info["check"] = " OR ".join(f"{name} = '{state}'" for state in states)
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
        elif column.type is TIME:
            guard = "" if not column.nullable else f"{key} IS NULL OR "
            checks.append(CheckConstraint(f"{guard}{key} GLOB '{TIME_PATTERN}'", name=key).ddl_if(dialect="sqlite"))
        elif column.type is JSON_TEXT:
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
    _status(("active", "terminating", "terminated", "lost"), "active"),
    Column("started_at", TIME, nullable=False),
    Column("last_heartbeat", TIME, nullable=False),
    Column("heartbeat_interval_seconds", Float, nullable=False),
    Column("lease_seconds", Float, nullable=False),
    Column("lease_expires_at", TIME, nullable=False),
    Column("current_task_id", BigId),
    Column("slots", Integer, nullable=False, server_default=text("1")),
    *_process_columns(),
    Column("group_id", String),
    Column("adapter_id", String),
    Column("capabilities_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("queues_json", JSON_TEXT, nullable=False, server_default="[]"),
    Column("handlers_json", JSON_TEXT, nullable=False, server_default="[]"),
    Column("resources_json", JSON_TEXT),
    Column("version", String),
    Column("metadata_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("tasks_done", BigId, nullable=False, server_default=text("0")),
    Column("tasks_failed", BigId, nullable=False, server_default=text("0")),
    Column("idle_since", TIME),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("terminating_at", TIME),
    Column("drain_deadline_at", TIME),
    Column("stopped_at", TIME),
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
    Column("created_at", TIME, nullable=False),
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
    Column("payload_json", JSON_TEXT),
    _status(("blocked", "scheduled", "pending", "running", "done", "failed", "cancelled"), "pending"),
    Column("blocked_reason", String),
    Column("rank", BigId, nullable=False, server_default=text("0")),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("available_at", TIME),
    Column("created_at", TIME, nullable=False),
    Column("claimed_at", TIME),
    Column("started_at", TIME),
    Column("finished_at", TIME),
    Column("deadline_at", TIME),
    Column("worker", String),
    Column("incarnation", String),
    Column("claim_token", BigId, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False, server_default=text("3")),
    Column("interruptions", Integer, nullable=False, server_default=text("0")),
    Column("retry_json", JSON_TEXT),
    Column("timeout_seconds", Float),
    Column("dedupe_key", String),
    Column("dedupe_scope", String),
    Column("idempotency_key", String),
    Column("concurrency_key", String),
    Column("requires_json", JSON_TEXT),
    Column("prefers_json", JSON_TEXT),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("avoid_worker", String),
    Column("batch_id", String),
    Column("parent_id", BigId),
    Column("progress", Float),
    Column("progress_text", String),
    Column("metrics_json", JSON_TEXT),
    Column("result_json", JSON_TEXT),
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

_BLOCKED = text("status = 'blocked'")
_OPEN = text(f"status IN ({_values(('blocked', 'scheduled', 'pending', 'running'))}) AND dedupe_key IS NOT NULL")
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
    Column("payload_json", JSON_TEXT, nullable=False),
)

task_handler = _table(
    "task_handler",
    Column("name", String, primary_key=True),
    Column("queue", String),
    Column("requires_json", JSON_TEXT),
    Column("max_attempts", Integer),
    Column("timeout_seconds", Float),
    Column("retry_json", JSON_TEXT),
    Column("signature", String),
    Column("updated_at", TIME, nullable=False),
    CheckConstraint("max_attempts IS NULL OR max_attempts >= 1", name="max_attempts"),
    CheckConstraint("timeout_seconds IS NULL OR timeout_seconds > 0", name="timeout"),
)

work_minute = _table(
    "work_minute",
    Column("minute", TIME, primary_key=True),
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
    Column("settings_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("version", BigId, nullable=False, server_default=text("1")),
    Column("desired_workers", Integer),
    Column("min_workers", Integer, nullable=False, server_default=text("0")),
    Column("max_workers", Integer),
    Column("max_launch_per_cycle", Integer, nullable=False, server_default=text("100")),
    Column("template_json", JSON_TEXT),
    Column("lease_holder_json", JSON_TEXT),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("lease_expires_at", TIME),
    Column("offers_json", JSON_TEXT),
    Column("last_cycle_at", TIME),
    Column("last_scale_up_at", TIME),
    Column("last_scale_down_at", TIME),
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
    Column("base_capabilities_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("last_heartbeat", TIME),
    Column("lease_expires_at", TIME),
    Column("status", String, nullable=False, server_default="active", info={"check": "status IN ('active', 'paused')"}),
    Column("backoff_until", TIME),
    Column("consecutive_failures", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("consecutive_failures >= 0", name="failures"),
)

worker_group = _table(
    "worker_group",
    Column("group_id", String, primary_key=True),
    Column("pool", String, nullable=False),
    Column("adapter_id", String),
    Column("capabilities_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("target_size", Integer, nullable=False),
    _status(("requested", "launching", "running", "stopping", "stopped", "failed"), "requested"),
    Column("launch_token", String, nullable=False),
    *_process_columns(),
    Column("created_at", TIME, nullable=False),
    Column("contacted_at", TIME),
    Column("boot_deadline_at", TIME),
    Column("last_heartbeat", TIME),
    Column("lease_seconds", Float, nullable=False, server_default=text("20")),
    Column("lease_expires_at", TIME),
    Column("stopped_at", TIME),
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
    _status(("start_worker_group", "shutdown_worker_group"), name="kind"),
    Column("arguments_json", JSON_TEXT, nullable=False, server_default="{}"),
    _status(("pending", "taken", "succeeded", "failed", "expired", "cancelled"), "pending"),
    Column("taken_by_json", JSON_TEXT),
    Column("scheduler_epoch", BigId, nullable=False, server_default=text("0")),
    Column("adapter_epoch", BigId),
    Column("created_at", TIME, nullable=False),
    Column("expires_at", TIME, nullable=False),
    Column("taken_at", TIME),
    Column("finished_at", TIME),
    Column("reply_json", JSON_TEXT),
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
    Column("created_at", TIME, nullable=False),
    Column("last_seen_at", TIME, nullable=False),
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
    Column("reasons_json", JSON_TEXT, nullable=False, server_default="[]"),
    Column("actions_json", JSON_TEXT, nullable=False, server_default="{}"),
    sqlite_autoincrement=True,
)

Index("ix_scaling_decision_pool", scaling_decision.c.pool, scaling_decision.c.decision_id)

maintenance = _table(
    "maintenance",
    Column("id", Integer, primary_key=True, autoincrement=False, info={"check": "id = 1"}),
    Column("holder_json", JSON_TEXT),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("lease_expires_at", TIME),
    Column("last_pass_at", TIME),
    Column("gap_started_at", TIME),
    Column("gap_ended_at", TIME),
    Column("prune_cursor", BigId, nullable=False, server_default=text("0")),
)

fleet_event = _table(
    "fleet_event",
    Column("event_id", BigId, primary_key=True),
    Column("at", TIME, nullable=False),
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


# Views and triggers, for people and for programs in other languages.

_SQLITE_VIEWS = (
    """
    CREATE VIEW fleet_workers AS
    SELECT w.worker_id, w.pool, w.status,
        CASE
            WHEN w.status IN ('terminated', 'lost') THEN w.status
            WHEN w.lease_expires_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN 'dead'
            WHEN w.status = 'terminating' THEN 'draining'
            WHEN w.paused THEN 'paused'
            WHEN EXISTS (SELECT 1 FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
                         AND q.incarnation = w.incarnation) THEN 'busy'
            ELSE 'ready'
        END AS state,
        (SELECT min(q.id) FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
         AND q.incarnation = w.incarnation) AS current_task_id,
        round((julianday('now') - julianday(w.last_heartbeat)) * 86400, 1) AS heartbeat_age_seconds,
        round((julianday(w.lease_expires_at) - julianday('now')) * 86400, 1) AS lease_left_seconds,
        round((julianday('now') - julianday(w.started_at)) * 86400, 1) AS age_seconds,
        w.host, w.pid, w.group_id, w.adapter_id, w.slots, w.capabilities_json, w.queues_json, w.handlers_json,
        w.tasks_done, w.tasks_failed, w.started_at, w.last_heartbeat, w.lease_expires_at, w.idle_since,
        w.terminating_at, w.drain_deadline_at, w.stopped_at, w.stop_reason, w.incarnation, w.version, w.log_path,
        w.metadata_json
    FROM worker_registry w
    """,
    """
    CREATE VIEW fleet_tasks AS
    SELECT q.id, q.task, q.queue, q.status, q.priority, q.attempt, q.max_attempts, q.interruptions, q.worker,
        q.progress, q.progress_text,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json,
        q.result_json, q.error, q.error_kind, q.created_at, q.available_at, q.claimed_at, q.started_at, q.finished_at,
        round((julianday('now') - julianday(q.created_at)) * 86400, 1) AS age_seconds,
        round((julianday(coalesce(q.finished_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))
               - julianday(q.started_at)) * 86400, 3) AS run_seconds,
        l.capability_key AS requires_json, q.timeout_seconds, q.dedupe_key, q.idempotency_key, q.claim_token,
        q.incarnation, q.lane_id
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id
    """,
    """
    CREATE VIEW fleet_status AS
    SELECT 'workers' AS kind, state AS name, count(*) AS count, max(heartbeat_age_seconds) AS oldest_seconds
    FROM fleet_workers WHERE status IN ('active', 'terminating') OR state = 'lost' GROUP BY state
    UNION ALL
    SELECT 'tasks', status, count(*), round((julianday('now') - julianday(min(created_at))) * 86400, 1)
    FROM work_queue GROUP BY status
    UNION ALL
    SELECT 'groups', status, count(*), round((julianday('now') - julianday(min(created_at))) * 86400, 1)
    FROM worker_group GROUP BY status
    """,
    """
    CREATE VIEW fleet_claimable AS
    SELECT l.lane_id, l.queue, l.task, l.capability_key AS requires, l.assigned_worker, count(*) AS waiting
    FROM claim_lane l JOIN work_queue q ON q.lane_id = l.lane_id AND q.status = 'pending'
    GROUP BY l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker
    """,
    """
    CREATE VIEW fleet_inbox AS
    SELECT task, payload_json, queue, priority, idempotency_key FROM work_queue WHERE 0
    """,
    """
    CREATE TRIGGER fleet_inbox_insert INSTEAD OF INSERT ON fleet_inbox
    BEGIN
        SELECT RAISE(ABORT, 'fleet_inbox: task is required') WHERE NEW.task IS NULL OR NEW.task = '';
        SELECT RAISE(ABORT, 'fleet_inbox: task and queue take 1 to 100 of A-Z a-z 0-9 _ . : / -')
        WHERE typeof(NEW.task) <> 'text' OR length(NEW.task) > 100 OR NEW.task GLOB '*[^A-Za-z0-9_.:/-]*'
            OR NEW.task GLOB '[^A-Za-z0-9_]*'
            OR (NEW.queue IS NOT NULL AND (typeof(NEW.queue) <> 'text' OR length(NEW.queue) NOT BETWEEN 1 AND 100
                OR NEW.queue GLOB '*[^A-Za-z0-9_.:/-]*' OR NEW.queue GLOB '[^A-Za-z0-9_]*'));
        SELECT RAISE(ABORT, 'fleet_inbox: priority must be a whole number from -1000000 to 1000000')
        WHERE NEW.priority IS NOT NULL
            AND (typeof(NEW.priority) <> 'integer' OR NEW.priority NOT BETWEEN -1000000 AND 1000000);
        SELECT RAISE(ABORT, 'fleet_inbox: idempotency_key must be a text')
        WHERE NEW.idempotency_key IS NOT NULL AND typeof(NEW.idempotency_key) <> 'text';
        SELECT RAISE(ABORT, 'fleet_inbox: payload_json must be a JSON object')
        WHERE NEW.payload_json IS NOT NULL
            AND CASE WHEN json_valid(NEW.payload_json) THEN json_type(NEW.payload_json) END IS NOT 'object';
        INSERT INTO claim_lane (queue, task, capability_key, created_at)
        SELECT coalesce(NEW.queue, h.queue, 'default'), NEW.task, coalesce(h.requires_json, '{}'),
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
        FROM (SELECT 1) LEFT JOIN task_handler h ON h.name = NEW.task
        WHERE true
        ON CONFLICT DO NOTHING;
        INSERT INTO work_queue (lane_id, queue, task, payload_json, priority, rank, max_attempts, timeout_seconds,
            retry_json, requires_json, idempotency_key, created_at)
        SELECT l.lane_id, l.queue, NEW.task, coalesce(NEW.payload_json, '{}'), coalesce(NEW.priority, 0),
            -coalesce(NEW.priority, 0), coalesce(h.max_attempts, 3), h.timeout_seconds, h.retry_json,
            h.requires_json, NEW.idempotency_key, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
        FROM claim_lane l LEFT JOIN task_handler h ON h.name = NEW.task
        WHERE l.task = NEW.task AND l.queue = coalesce(NEW.queue, h.queue, 'default')
            AND l.capability_key = coalesce(h.requires_json, '{}') AND l.assigned_worker = ''
            AND NOT EXISTS (SELECT 1 FROM work_queue q
                            WHERE q.task = NEW.task AND q.idempotency_key = NEW.idempotency_key);
    END
    """,
)

_AGE = "round(CAST(extract(epoch FROM statement_timestamp() - {}) AS numeric), 1)"

_POSTGRESQL_VIEWS = (
    f"""
    CREATE VIEW fleet_workers AS
    SELECT w.worker_id, w.pool, w.status,
        CASE
            WHEN w.status IN ('terminated', 'lost') THEN w.status
            WHEN w.lease_expires_at < statement_timestamp() THEN 'dead'
            WHEN w.status = 'terminating' THEN 'draining'
            WHEN w.paused THEN 'paused'
            WHEN EXISTS (SELECT 1 FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
                         AND q.incarnation = w.incarnation) THEN 'busy'
            ELSE 'ready'
        END AS state,
        (SELECT min(q.id) FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
         AND q.incarnation = w.incarnation) AS current_task_id,
        {_AGE.format("w.last_heartbeat")} AS heartbeat_age_seconds,
        -{_AGE.format("w.lease_expires_at")} AS lease_left_seconds,
        {_AGE.format("w.started_at")} AS age_seconds,
        w.host, w.pid, w.group_id, w.adapter_id, w.slots, w.capabilities_json, w.queues_json, w.handlers_json,
        w.tasks_done, w.tasks_failed, w.started_at, w.last_heartbeat, w.lease_expires_at, w.idle_since,
        w.terminating_at, w.drain_deadline_at, w.stopped_at, w.stop_reason, w.incarnation, w.version, w.log_path,
        w.metadata_json
    FROM worker_registry w
    """,
    f"""
    CREATE VIEW fleet_tasks AS
    SELECT q.id, q.task, q.queue, q.status, q.priority, q.attempt, q.max_attempts, q.interruptions, q.worker,
        q.progress, q.progress_text,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json,
        q.result_json, q.error, q.error_kind, q.created_at, q.available_at, q.claimed_at, q.started_at, q.finished_at,
        {_AGE.format("q.created_at")} AS age_seconds,
        round(CAST(extract(epoch FROM coalesce(q.finished_at, statement_timestamp()) - q.started_at) AS numeric), 3)
            AS run_seconds,
        CAST(l.capability_key AS json) AS requires_json, q.timeout_seconds, q.dedupe_key, q.idempotency_key,
        q.claim_token, q.incarnation, q.lane_id
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id
    """,
    f"""
    CREATE VIEW fleet_status AS
    SELECT 'workers' AS kind, state AS name, count(*) AS count, max(heartbeat_age_seconds) AS oldest_seconds
    FROM fleet_workers WHERE status IN ('active', 'terminating') OR state = 'lost' GROUP BY state
    UNION ALL
    SELECT 'tasks', status, count(*), {_AGE.format("min(created_at)")} FROM work_queue GROUP BY status
    UNION ALL
    SELECT 'groups', status, count(*), {_AGE.format("min(created_at)")} FROM worker_group GROUP BY status
    """,
    _SQLITE_VIEWS[3],
    """
    CREATE VIEW fleet_inbox AS
    SELECT task, payload_json, queue, priority, idempotency_key FROM work_queue WHERE false
    """,
    """
    CREATE FUNCTION fleet_inbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        handler task_handler;
        lane bigint;
        in_queue text;
    BEGIN
        IF NEW.task IS NULL OR NEW.task = '' THEN
            RAISE EXCEPTION 'fleet_inbox: task is required';
        END IF;
        IF NEW.task !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,99}$'
            OR coalesce(NEW.queue, 'default') !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,99}$' THEN
            RAISE EXCEPTION 'fleet_inbox: task and queue take 1 to 100 of A-Z a-z 0-9 _ . : / -';
        END IF;
        IF coalesce(NEW.priority, 0) NOT BETWEEN -1000000 AND 1000000 THEN
            RAISE EXCEPTION 'fleet_inbox: priority must be a whole number from -1000000 to 1000000';
        END IF;
        IF NEW.payload_json IS NOT NULL AND json_typeof(NEW.payload_json) <> 'object' THEN
            RAISE EXCEPTION 'fleet_inbox: payload_json must be a JSON object';
        END IF;
        SELECT * INTO handler FROM task_handler WHERE name = NEW.task;
        in_queue := coalesce(NEW.queue, handler.queue, 'default');
        INSERT INTO claim_lane (queue, task, capability_key, created_at)
        VALUES (in_queue, NEW.task, coalesce(handler.requires_json::text, '{}'), clock_timestamp())
        ON CONFLICT DO NOTHING;
        SELECT lane_id INTO lane FROM claim_lane
        WHERE queue = in_queue AND task = NEW.task AND assigned_worker = ''
            AND capability_key = coalesce(handler.requires_json::text, '{}');
        INSERT INTO work_queue (lane_id, queue, task, payload_json, priority, rank, max_attempts, timeout_seconds,
            retry_json, requires_json, idempotency_key, created_at)
        VALUES (lane, in_queue, NEW.task, coalesce(NEW.payload_json, '{}'::json), coalesce(NEW.priority, 0),
            -coalesce(NEW.priority, 0), coalesce(handler.max_attempts, 3), handler.timeout_seconds,
            handler.retry_json, handler.requires_json, NEW.idempotency_key,
            date_trunc('milliseconds', clock_timestamp()))
        ON CONFLICT (task, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER fleet_inbox_insert INSTEAD OF INSERT ON fleet_inbox
    FOR EACH ROW EXECUTE FUNCTION fleet_inbox_insert()
    """,
)


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection)
    for statement in _POSTGRESQL_VIEWS if connection.dialect.name == "postgresql" else _SQLITE_VIEWS:
        # The driver gets the text as it stands: colons and percent signs mean nothing to it without parameters.
        connection.exec_driver_sql(statement)
    rows = [
        {"name": "database_uuid", "value": uuid.uuid4().hex},
        {"name": "oldest_reader", "value": revision},
        {"name": "age_ms", "value": "0"},
        {"name": "retention_seconds", "value": "604800"},
    ]
    op.bulk_insert(metadata.tables["fleet_meta"], rows)
    op.bulk_insert(metadata.tables["maintenance"], [{"id": 1}])


def downgrade() -> None:
    connection = op.get_bind()
    for view in ("fleet_inbox", "fleet_claimable", "fleet_status", "fleet_tasks", "fleet_workers"):
        connection.exec_driver_sql(f"DROP VIEW {view}")
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION fleet_inbox_insert()")
    metadata.drop_all(connection)
