"""Workers."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Float, Integer, String, text

from fleet.domain.health import HealthStatus
from fleet.domain.worker import WorkerStatus
from fleet.storage.tables.columns import process_columns, status, table, values_of
from fleet.storage.types import BigId, JsonText, UtcTime

worker_registry = table(
    "worker_registry",
    Column("worker_id", String, primary_key=True),
    Column("incarnation", String, nullable=False),
    Column("pool", String, nullable=False, server_default="default"),
    status(WorkerStatus, WorkerStatus.ACTIVE),
    Column("started_at", UtcTime, nullable=False),
    Column("last_heartbeat", UtcTime, nullable=False),
    Column("heartbeat_interval_seconds", Float, nullable=False),
    Column("lease_seconds", Float, nullable=False),
    Column("lease_expires_at", UtcTime, nullable=False),
    Column("current_task_id", BigId),
    Column("slots", Integer, nullable=False, server_default=text("1")),
    *process_columns(),
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
    Column("health", String, info={"check": f"health IS NULL OR health IN ({values_of(HealthStatus)})"}),
    Column("health_json", JsonText),
    CheckConstraint("lease_seconds >= 3 * heartbeat_interval_seconds", name="lease"),
    CheckConstraint("heartbeat_interval_seconds > 0", name="heartbeat"),
    CheckConstraint("slots >= 1", name="slots"),
)
