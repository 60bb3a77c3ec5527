"""The whole fleet: maintenance, statistics, events, settings."""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, String, text

from fleet.storage.tables.columns import table
from fleet.storage.types import BigId, JsonText, UtcTime

work_minute = table(
    "work_minute",
    Column("minute", UtcTime, primary_key=True),
    Column("queue", String, primary_key=True),
    Column("task", String, primary_key=True),
    Column("done", BigId, nullable=False, server_default=text("0")),
    Column("failed", BigId, nullable=False, server_default=text("0")),
    Column("busy_seconds", Float, nullable=False, server_default=text("0")),
    Column("max_seconds", Float, nullable=False, server_default=text("0")),
)

maintenance = table(
    "maintenance",
    Column("id", Integer, primary_key=True, autoincrement=False, info={"check": "id = 1"}),
    Column("holder_json", JsonText),
    Column("epoch", BigId, nullable=False, server_default=text("0")),
    Column("lease_expires_at", UtcTime),
    Column("last_pass_at", UtcTime),
    Column("gap_started_at", UtcTime),
    Column("gap_ended_at", UtcTime),
    Column("prune_cursor", BigId, nullable=False, server_default=text("0")),
    Column("sweep_lane", BigId, nullable=False, server_default=text("0")),
    Column("sweep_id", BigId, nullable=False, server_default=text("0")),
)

fleet_event = table(
    "fleet_event",
    Column("event_id", BigId, primary_key=True),
    Column("at", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("text", String, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)

fleet_meta = table(
    "fleet_meta",
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)
