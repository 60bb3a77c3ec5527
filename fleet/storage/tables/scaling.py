"""Pools, adapters, groups of workers, orders to adapters, decisions."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Float, Index, Integer, String, UniqueConstraint, text

from fleet.domain.group import CommandKind, CommandStatus, GroupStatus
from fleet.storage.tables.columns import process_columns, status, table
from fleet.storage.types import BigId, JsonText, UtcTime

scheduler = table(
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

worker_adapter = table(
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
    *process_columns()[1:],
    Column("lease_seconds", Float),
    Column("reason", String),
    Column("resizes", Boolean),
    Column("on_request_json", JsonText),
    CheckConstraint("consecutive_failures >= 0", name="failures"),
)

worker_group = table(
    "worker_group",
    Column("group_id", String, primary_key=True),
    Column("pool", String, nullable=False),
    Column("adapter_id", String),
    Column("capabilities_json", JsonText, nullable=False, server_default="{}"),
    Column("target_size", Integer, nullable=False),
    status(GroupStatus, GroupStatus.REQUESTED),
    Column("launch_token", String, nullable=False),
    *process_columns(),
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
    Column("reference", String),
    Column("listens_until", UtcTime),
    CheckConstraint("target_size >= 0", name="target_size"),
    UniqueConstraint("launch_token"),
)

Index(
    "ix_worker_group_live",
    worker_group.c.pool,
    sqlite_where=text("status NOT IN ('stopped', 'failed')"),
    postgresql_where=text("status NOT IN ('stopped', 'failed')"),
)

adapter_command = table(
    "adapter_command",
    Column("command_id", BigId, primary_key=True),
    Column("adapter_id", String, nullable=False),
    Column("pool", String, nullable=False),
    status(CommandKind, name="kind"),
    Column("arguments_json", JsonText, nullable=False, server_default="{}"),
    status(CommandStatus, CommandStatus.PENDING),
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

scaling_decision = table(
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
    Column("codes_json", JsonText),
    Column("inputs_json", JsonText),
    sqlite_autoincrement=True,
)

Index("ix_scaling_decision_pool", scaling_decision.c.pool, scaling_decision.c.decision_id)
