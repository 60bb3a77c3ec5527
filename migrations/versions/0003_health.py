"""How workers are, orders to them, and quarantines; a view that shows them.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0003
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy.dialects import postgresql

from fleet.errors import SchemaMismatch

revision = "0003"
down_revision = "0002"
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


worker_command = _table(
    "worker_command",
    Column("command_id", BigId, primary_key=True),
    Column("worker_id", String, nullable=False),
    Column("incarnation", String, nullable=False),
    _status(("restart", "set_task", "get_status", "cancel_task"), name="kind"),
    Column("arguments_json", JSON_TEXT, nullable=False, server_default="{}"),
    _status(("pending", "taken", "succeeded", "failed", "expired", "cancelled"), "pending"),
    Column("taken_by", String),
    Column("created_at", TIME, nullable=False),
    Column("expires_at", TIME, nullable=False),
    Column("taken_at", TIME),
    Column("finished_at", TIME),
    Column("reply_json", JSON_TEXT),
    Column("error_code", Integer),
    Column("error_message", String),
    sqlite_autoincrement=True,
)

_OPEN_COMMAND = text("status IN ('pending', 'taken')")
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

quarantine = _table(
    "quarantine",
    Column("id", BigId, primary_key=True),
    _status(("host", "worker"), name="scope"),
    Column("subject", String, nullable=False),
    Column("evidence_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("reason", String, nullable=False, server_default=""),
    Column("created_at", TIME, nullable=False),
    Column("until", TIME, nullable=False),
    Column("released_at", TIME),
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

_NEW_TABLES = (worker_command, quarantine)

_HEALTH = "health IS NULL OR health IN ('healthy', 'degraded', 'unhealthy', 'unknown')"
_NEW_COLUMNS = {
    # A CHECK that stands with its column goes with it: SQLite cannot drop one of a table.
    "sqlite": (
        f"ALTER TABLE worker_registry ADD COLUMN health VARCHAR CONSTRAINT ck_worker_registry_health CHECK ({_HEALTH})",
        "ALTER TABLE worker_registry ADD COLUMN health_json VARCHAR CONSTRAINT ck_worker_registry_health_json "
        "CHECK (health_json IS NULL OR json_valid(health_json))",
    ),
    "postgresql": (
        "ALTER TABLE worker_registry ADD COLUMN health VARCHAR, ADD COLUMN health_json JSON, "
        f"ADD CONSTRAINT ck_worker_registry_health CHECK ({_HEALTH})",
    ),
}

_QUARANTINED = """EXISTS (SELECT 1 FROM quarantine z WHERE z.released_at IS NULL AND z.until > {now}
                AND z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END)"""
_WORKERS_TEXT = """
    CREATE VIEW fleet_workers AS
    SELECT w.worker_id, w.pool, w.status,
        CASE
            WHEN w.status IN ('terminated', 'lost') THEN w.status
            WHEN w.lease_expires_at < {now} THEN 'dead'
            WHEN w.status = 'terminating' THEN 'draining'
            WHEN {quarantined} THEN 'quarantined'
            WHEN w.paused THEN 'paused'
            WHEN EXISTS (SELECT 1 FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
                         AND q.incarnation = w.incarnation) THEN 'busy'
            ELSE 'ready'
        END AS state,
        (SELECT min(q.id) FROM work_queue q WHERE q.worker = w.worker_id AND q.status = 'running'
         AND q.incarnation = w.incarnation) AS current_task_id,
        {beat_age} AS heartbeat_age_seconds,
        {lease_left} AS lease_left_seconds,
        {age} AS age_seconds,
        w.host, w.pid, w.group_id, w.adapter_id, w.slots, w.capabilities_json, w.queues_json, w.handlers_json,
        w.tasks_done, w.tasks_failed, w.started_at, w.last_heartbeat, w.lease_expires_at, w.idle_since,
        w.terminating_at, w.drain_deadline_at, w.stopped_at, w.stop_reason, w.incarnation, w.version, w.log_path,
        w.metadata_json, w.health, w.health_json AS health_checks_json
    FROM worker_registry w
    """


def _workers_view(connection: Connection) -> str:
    if connection.dialect.name == "postgresql":
        now, age = "statement_timestamp()", "round(CAST(extract(epoch FROM statement_timestamp() - {}) AS numeric), 1)"
        left = f"-{age.format('w.lease_expires_at')}"
    else:
        now, age = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')", "round((julianday('now') - julianday({})) * 86400, 1)"
        left = "round((julianday(w.lease_expires_at) - julianday('now')) * 86400, 1)"
    return _WORKERS_TEXT.format(
        now=now,
        quarantined=_QUARANTINED.format(now=now),
        beat_age=age.format("w.last_heartbeat"),
        lease_left=left,
        age=age.format("w.started_at"),
    )


def _earlier(name: str) -> Any:
    """Return an earlier migration, which is frozen too and has views that stay as they are."""
    spec = importlib.util.spec_from_file_location(f"fleet_migration_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise SchemaMismatch(f"the migration {name} is missing: install sqlfleet again")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _view_of(name: str, connection: Connection, view: str) -> str:
    """Return the statement with which an earlier migration made a view."""
    module, dialect = _earlier(name), connection.dialect.name
    statements = module._POSTGRESQL_VIEWS if dialect == "postgresql" else module._SQLITE_VIEWS
    return next(str(each) for each in statements if f"CREATE VIEW {view} " in each)


def _make_views_anew(connection: Connection, workers: str) -> None:
    # The status is made from the workers' view.
    for view in ("fleet_status", "fleet_workers"):
        connection.exec_driver_sql(f"DROP VIEW {view}")
    # The driver gets the text as it stands: colons mean nothing to it.
    connection.exec_driver_sql(workers)
    connection.exec_driver_sql(_view_of("0002_queue", connection, "fleet_status"))


def _set_oldest_reader(connection: Connection, oldest: str) -> None:
    connection.execute(text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest})


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, tables=_NEW_TABLES)
    for statement in _NEW_COLUMNS[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    op.create_index("ix_work_attempt_worker", "work_attempt", ["worker", "ended_at"])
    _make_views_anew(connection, _workers_view(connection))
    # A release of before would claim for workers in quarantine.
    _set_oldest_reader(connection, revision)


def downgrade() -> None:
    connection = op.get_bind()
    # First: a view that names a column keeps it from being dropped.
    _make_views_anew(connection, _view_of("0001_first", connection, "fleet_workers"))
    op.drop_index("ix_work_attempt_worker", "work_attempt")
    for column in ("health_json", "health"):
        op.drop_column("worker_registry", column)
    metadata.drop_all(connection, tables=_NEW_TABLES)
    _set_oldest_reader(connection, str(down_revision))
