"""What is done about workers that are not well: orders to them, and quarantines."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, String, text

from fleet.domain.group import CommandStatus
from fleet.domain.orders import OrderKind
from fleet.domain.quarantine import Scope
from fleet.storage.tables.columns import status, table
from fleet.storage.types import BigId, JsonText, UtcTime

worker_command = table(
    "worker_command",
    Column("command_id", BigId, primary_key=True),
    Column("worker_id", String, nullable=False),
    Column("incarnation", String, nullable=False),
    status(OrderKind, name="kind"),
    Column("arguments_json", JsonText, nullable=False, server_default="{}"),
    status(CommandStatus, CommandStatus.PENDING),
    Column("taken_by", String),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("taken_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("reply_json", JsonText),
    Column("error_code", Integer),
    Column("error_message", String),
    sqlite_autoincrement=True,
)

_OPEN_COMMAND = text("status IN ('pending', 'taken')")
# At most one open order of a kind to one life of a worker: whoever gives it twice has given it once.
Index(
    "uq_worker_command_open",
    worker_command.c.worker_id,
    worker_command.c.incarnation,
    worker_command.c.kind,
    unique=True,
    sqlite_where=_OPEN_COMMAND,
    postgresql_where=_OPEN_COMMAND,
)
Index("ix_worker_command_worker", worker_command.c.worker_id, worker_command.c.command_id)

quarantine = table(
    "quarantine",
    Column("id", BigId, primary_key=True),
    status(Scope, name="scope"),
    Column("subject", String, nullable=False),
    Column("evidence_json", JsonText, nullable=False, server_default="{}"),
    Column("reason", String, nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
    Column("until", UtcTime, nullable=False),
    Column("released_at", UtcTime),
    Column("released_by", String),
    CheckConstraint("(released_at IS NULL) = (released_by IS NULL)", name="released"),
    sqlite_autoincrement=True,
)

_OPEN_QUARANTINE = text("released_at IS NULL")
Index(
    "uq_quarantine_open",
    quarantine.c.scope,
    quarantine.c.subject,
    unique=True,
    sqlite_where=_OPEN_QUARANTINE,
    postgresql_where=_OPEN_QUARANTINE,
)
