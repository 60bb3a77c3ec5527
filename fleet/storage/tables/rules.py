"""What rules over tasks: schedules, pauses, limits, the defaults of handlers."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Float, Integer, String, text

from fleet.domain.schedule import Missed, Overlap, TickOutcome
from fleet.storage.tables.columns import status, table
from fleet.storage.types import BigId, JsonText, UtcTime

work_schedule = table(
    "work_schedule",
    Column("name", String, primary_key=True),
    Column("task", String, nullable=False),
    Column("payload_json", JsonText, nullable=False, server_default="{}"),
    Column("options_json", JsonText, nullable=False, server_default="{}"),
    Column("cron", String),
    Column("every_seconds", Float),
    Column("tz", String, nullable=False, server_default="UTC"),
    status(Missed, Missed.LATEST, name="missed"),
    status(Overlap, Overlap.SKIP, name="overlap"),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", UtcTime, nullable=False),
    Column("starts_at", UtcTime),
    Column("next_tick_at", UtcTime),
    Column("last_tick_at", UtcTime),
    Column("last_task_id", BigId),
    CheckConstraint("(cron IS NULL) <> (every_seconds IS NULL)", name="cron_or_interval"),
    CheckConstraint("every_seconds IS NULL OR every_seconds > 0", name="every_seconds"),
)

work_schedule_tick = table(
    "work_schedule_tick",
    Column("schedule", String, primary_key=True),
    Column("tick_at", UtcTime, primary_key=True),
    status(TickOutcome, name="outcome"),
    Column("task_id", BigId),
    Column("created_at", UtcTime, nullable=False),
)

queue_setting = table(
    "queue_setting",
    Column("queue", String, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_until", UtcTime),
)

limit_setting = table(
    "limit_setting",
    Column("key", String, primary_key=True),
    Column("max_running", Integer),
    Column("rate", Float),
    Column("per_seconds", Float),
    Column("burst", Integer),
    CheckConstraint("max_running IS NULL OR max_running >= 0", name="max_running"),
    CheckConstraint("(rate IS NULL) = (per_seconds IS NULL)", name="rate"),
    CheckConstraint("rate IS NULL OR (rate > 0 AND per_seconds > 0)", name="positive_rate"),
    CheckConstraint("burst IS NULL OR burst >= 1", name="burst"),
)

limit_state = table(
    "limit_state",
    Column("key", String, primary_key=True),
    Column("next_allowed_at", UtcTime, nullable=False),
)

task_handler = table(
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
