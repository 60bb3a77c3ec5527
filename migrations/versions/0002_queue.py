"""The complete queue: dependencies, batches, schedules, limits, pauses, steps and attempts; views that show them.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0002
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy.dialects import postgresql

from fleet.errors import SchemaMismatch

revision = "0002"
down_revision = "0001"
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


# Only what the new tables refer to: the migration before made it.
Table("work_queue", metadata, Column("id", BigId, primary_key=True))

work_step = _table(
    "work_step",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("name", String, primary_key=True),
    Column("value_json", JSON_TEXT, nullable=False),
    Column("claim_token", BigId, nullable=False),
    Column("created_at", TIME, nullable=False),
)

work_attempt = _table(
    "work_attempt",
    Column("task_id", BigId, ForeignKey("work_queue.id"), primary_key=True, autoincrement=False),
    Column("claim_token", BigId, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", String),
    Column("incarnation", String),
    _status(("failed", "cancelled", "interrupted", "lost"), name="outcome"),
    Column("error", String),
    Column("error_kind", String),
    Column("traceback", String),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("peak_memory_mb", Float),
    Column("started_at", TIME),
    Column("ended_at", TIME, nullable=False),
)

work_dependency = _table(
    "work_dependency",
    Column("parent", BigId, primary_key=True, autoincrement=False),
    Column("child", BigId, primary_key=True, autoincrement=False),
    _status(("cancel", "fail", "run"), "cancel", name="policy"),
    Column("satisfied", Boolean, nullable=False, server_default=text("false")),
)

Index("ix_work_dependency_child", work_dependency.c.child, work_dependency.c.satisfied)

work_release = _table(
    "work_release",
    Column("task_id", BigId, primary_key=True, autoincrement=False),
)

work_batch = _table(
    "work_batch",
    Column("batch_id", String, primary_key=True),
    Column("created_at", TIME, nullable=False),
    Column("closed_at", TIME),
    Column("ended_at", TIME),
    Column("callback_id", BigId),
)

work_schedule = _table(
    "work_schedule",
    Column("name", String, primary_key=True),
    Column("task", String, nullable=False),
    Column("payload_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("options_json", JSON_TEXT, nullable=False, server_default="{}"),
    Column("cron", String),
    Column("every_seconds", Float),
    Column("tz", String, nullable=False, server_default="UTC"),
    _status(("latest", "all", "none"), "latest", name="missed"),
    _status(("skip", "allow"), "skip", name="overlap"),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", TIME, nullable=False),
    Column("starts_at", TIME),
    Column("next_tick_at", TIME),
    Column("last_tick_at", TIME),
    Column("last_task_id", BigId),
    CheckConstraint("(cron IS NULL) <> (every_seconds IS NULL)", name="cron_or_interval"),
    CheckConstraint("every_seconds IS NULL OR every_seconds > 0", name="every_seconds"),
)

work_schedule_tick = _table(
    "work_schedule_tick",
    Column("schedule", String, primary_key=True),
    Column("tick_at", TIME, primary_key=True),
    _status(("enqueued", "skipped", "missed"), name="outcome"),
    Column("task_id", BigId),
    Column("created_at", TIME, nullable=False),
)

queue_setting = _table(
    "queue_setting",
    Column("queue", String, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_until", TIME),
)

limit_setting = _table(
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

limit_state = _table(
    "limit_state",
    Column("key", String, primary_key=True),
    Column("next_allowed_at", TIME, nullable=False),
)

_NEW_TABLES = (
    work_step,
    work_attempt,
    work_dependency,
    work_release,
    work_batch,
    work_schedule,
    work_schedule_tick,
    queue_setting,
    limit_setting,
    limit_state,
)

_WAITING = "status IN ('blocked', 'scheduled', 'pending')"
_OPEN = "status IN ('blocked', 'scheduled', 'pending', 'running')"
_DEDUPE = f"dedupe_key IS NOT NULL AND ({_WAITING} OR (status = 'running' AND dedupe_scope = 'open'))"
_DEDUPE_BEFORE = f"{_OPEN} AND dedupe_key IS NOT NULL"


def _queue_index(name: str, columns: Sequence[str], where: str, unique: bool = False) -> None:
    condition = text(where)
    op.create_index(
        name, "work_queue", list(columns), unique=unique, sqlite_where=condition, postgresql_where=condition
    )


def _drop_queue_indexes(*names: str) -> None:
    for name in names:
        op.drop_index(name, "work_queue")


# Views and triggers, for people and for programs in other languages.

# A lane's key is {"gpu":1,"prefers":{"ssd":1}}: preferences are an object under one name. A key that is no JSON (any
# program may write a row) is shown as it is: a view that fails on one row shows none.
_HAS_PREFERENCES = """json_valid(l.capability_key) AND instr(l.capability_key, '"prefers":{') > 0"""
_REQUIRES = f"CASE WHEN {_HAS_PREFERENCES} THEN json_remove(l.capability_key, '$.prefers') ELSE l.capability_key END"
_PREFERS = f"CASE WHEN {_HAS_PREFERENCES} THEN json_extract(l.capability_key, '$.prefers') ELSE '{{}}' END"

_PAUSED = "s.paused AND (s.paused_until IS NULL OR s.paused_until > {now})"


def _open_tasks(status: str, first: str, age: str) -> str:
    """Return the row of one open state, counted in its partial index, or none where no task is in it."""
    created = "(SELECT q.created_at FROM work_queue q WHERE q.id = first)" if first == "min(id)" else "first"
    return f"""
    SELECT 'tasks', '{status}', count, {age.format(created)}
    FROM (SELECT count(*) AS count, {first} AS first FROM work_queue WHERE status = '{status}') AS {status}
    WHERE count > 0
    UNION ALL"""


def _finished(kind: str, since: str, no_age: str) -> str:
    """Return the rows of what has ended since a minute, by the statistics: history is not read."""
    return "\n    UNION ALL".join(
        f"""
    SELECT '{kind}', '{name}', count, {no_age}
    FROM (SELECT CAST(sum({name}) AS bigint) AS count FROM work_minute WHERE minute >= {since}) AS {kind}_{name}
    WHERE count > 0"""
        for name in ("done", "failed")
    )


def _status_view(age: str, first: dict[str, str], since: str, now: str, no_age: str) -> str:
    """Return the view `fleet_status`, whose cost does not grow with the finished tasks."""
    tasks = "".join(_open_tasks(status, first[status], age) for status in first)
    return f"""
    CREATE VIEW fleet_status AS
    SELECT 'workers' AS kind, state AS name, count(*) AS count, max(heartbeat_age_seconds) AS oldest_seconds
    FROM fleet_workers WHERE status IN ('active', 'terminating') OR state = 'lost' GROUP BY state
    UNION ALL{tasks}
    SELECT 'groups', status, count(*), {age.format("min(created_at)")} FROM worker_group GROUP BY status
    UNION ALL
    SELECT 'queues', s.queue,
        (SELECT count(*) FROM claim_lane l JOIN work_queue q ON q.lane_id = l.lane_id AND q.status = 'pending'
         WHERE l.queue = s.queue), {no_age}
    FROM queue_setting s WHERE {_PAUSED.format(now=now)}
    UNION ALL{_finished("finished_10m", since.format("10 minutes"), no_age)}
    UNION ALL{_finished("finished_24h", since.format("24 hours"), no_age)}
    """


def _claimable_view(requires: str, prefers: str, now: str) -> str:
    return f"""
    CREATE VIEW fleet_claimable AS
    SELECT l.lane_id, l.queue, l.task, {requires} AS requires, {prefers} AS prefers, l.assigned_worker, q.waiting
    FROM (SELECT lane_id, count(*) AS waiting FROM work_queue WHERE status = 'pending' GROUP BY lane_id) q
        JOIN claim_lane l ON l.lane_id = q.lane_id
    WHERE NOT EXISTS (SELECT 1 FROM queue_setting s WHERE s.queue = l.queue AND {_PAUSED.format(now=now)})
    """


# The columns of `fleet_tasks` after those that say what a task requires.
_FURTHER = """q.timeout_seconds, q.dedupe_key, q.idempotency_key, q.claim_token,
        q.incarnation, q.lane_id, q.blocked_reason, q.deadline_at, q.concurrency_key, q.dedupe_scope, q.batch_id,
        q.parent_id, q.cancel_requested, q.avoid_worker"""

_SQLITE_AGE = "round((julianday('now') - julianday({})) * 86400, 1)"
_SQLITE_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"

_SQLITE_VIEWS = (
    f"""
    CREATE VIEW fleet_tasks AS
    SELECT q.id, q.task, q.queue, q.status, q.priority, q.attempt, q.max_attempts, q.interruptions, q.worker,
        q.progress, q.progress_text,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json,
        q.result_json, q.error, q.error_kind, q.created_at, q.available_at, q.claimed_at, q.started_at, q.finished_at,
        {_SQLITE_AGE.format("q.created_at")} AS age_seconds,
        round((julianday(coalesce(q.finished_at, {_SQLITE_NOW})) - julianday(q.started_at)) * 86400, 3) AS run_seconds,
        {_REQUIRES} AS requires_json, {_FURTHER}, {_PREFERS} AS prefers_json
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id
    """,
    _status_view(
        age=_SQLITE_AGE,
        # Ids rise with the time of creation, and every index holds the id: no other row is read for the oldest.
        first=dict.fromkeys(("blocked", "scheduled", "pending", "running"), "min(id)"),
        since="strftime('%Y-%m-%dT%H:%M:00.000Z', 'now', '-{}')",
        now=_SQLITE_NOW,
        no_age="NULL",
    ),
    _claimable_view(_REQUIRES, _PREFERS, _SQLITE_NOW),
    """
    CREATE VIEW fleet_inbox AS
    SELECT task, payload_json, queue, priority, idempotency_key FROM work_queue WHERE 0
    """,
    f"""
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
        SELECT RAISE(ABORT, 'fleet_inbox: payload_json of more than 1048576 bytes: store a path or a key instead')
        WHERE length(CAST(NEW.payload_json AS BLOB)) > 1048576;
        INSERT INTO claim_lane (queue, task, capability_key, created_at)
        SELECT coalesce(NEW.queue, h.queue, 'default'), NEW.task, coalesce(h.requires_json, '{{}}'), {_SQLITE_NOW}
        FROM (SELECT 1) LEFT JOIN task_handler h ON h.name = NEW.task
        WHERE true
        ON CONFLICT (queue, task, capability_key, assigned_worker) DO NOTHING;
        INSERT INTO work_queue (lane_id, queue, task, payload_json, priority, rank, max_attempts, timeout_seconds,
            retry_json, requires_json, idempotency_key, created_at)
        SELECT l.lane_id, l.queue, NEW.task, coalesce(NEW.payload_json, '{{}}'), coalesce(NEW.priority, 0),
            CASE WHEN a.age_ms > 0 THEN CAST(round((julianday('now') - 2440587.5) * 86400000) AS integer)
                - coalesce(NEW.priority, 0) * a.age_ms ELSE -coalesce(NEW.priority, 0) END,
            coalesce(h.max_attempts, 3), h.timeout_seconds, h.retry_json,
            h.requires_json, NEW.idempotency_key, {_SQLITE_NOW}
        FROM claim_lane l LEFT JOIN task_handler h ON h.name = NEW.task
            JOIN (SELECT coalesce(max(CAST(value AS integer)), 0) AS age_ms FROM fleet_meta WHERE name = 'age_ms') a
        WHERE l.task = NEW.task AND l.queue = coalesce(NEW.queue, h.queue, 'default')
            AND l.capability_key = coalesce(h.requires_json, '{{}}') AND l.assigned_worker = ''
            AND NOT EXISTS (SELECT 1 FROM work_queue q
                            WHERE q.task = NEW.task AND q.idempotency_key = NEW.idempotency_key);
    END
    """,
)

_POSTGRESQL_AGE = "round(CAST(extract(epoch FROM statement_timestamp() - {}) AS numeric), 1)"
_POSTGRESQL_NOW = "statement_timestamp()"
_POSTGRESQL_HAS_PREFERENCES = """strpos(l.capability_key, '"prefers":{') > 0"""
# Not jsonb without the name: it would order and space the text anew, and equal sets must read equal.
_POSTGRESQL_REQUIRES = f"""CASE WHEN {_POSTGRESQL_HAS_PREFERENCES} THEN
            (SELECT '{{' || coalesce(string_agg(CAST(to_json(r.key) AS text) || ':' || CAST(r.value AS text), ','
                                                ORDER BY r.key COLLATE "C"), '') || '}}'
             FROM json_each(CAST(l.capability_key AS json)) r WHERE r.key <> 'prefers')
        ELSE l.capability_key END"""
_POSTGRESQL_PREFERS = f"""CASE WHEN {_POSTGRESQL_HAS_PREFERENCES}
        THEN CAST(l.capability_key AS json) ->> 'prefers' ELSE '{{}}' END"""

_POSTGRESQL_VIEWS = (
    f"""
    CREATE VIEW fleet_tasks AS
    SELECT q.id, q.task, q.queue, q.status, q.priority, q.attempt, q.max_attempts, q.interruptions, q.worker,
        q.progress, q.progress_text,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json,
        q.result_json, q.error, q.error_kind, q.created_at, q.available_at, q.claimed_at, q.started_at, q.finished_at,
        {_POSTGRESQL_AGE.format("q.created_at")} AS age_seconds,
        round(CAST(extract(epoch FROM coalesce(q.finished_at, statement_timestamp()) - q.started_at) AS numeric), 3)
            AS run_seconds,
        CAST({_POSTGRESQL_REQUIRES} AS json) AS requires_json, {_FURTHER},
        CAST({_POSTGRESQL_PREFERS} AS json) AS prefers_json
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id
    """,
    _status_view(
        age=_POSTGRESQL_AGE,
        # Where the index holds the id it is enough by itself; the other two states' rows are read.
        first={
            "blocked": "min(id)",
            "scheduled": "min(created_at)",
            "pending": "min(id)",
            "running": "min(created_at)",
        },
        since="date_trunc('minute', statement_timestamp() - interval '{}')",
        now=_POSTGRESQL_NOW,
        no_age="CAST(NULL AS numeric)",
    ),
    _claimable_view(_POSTGRESQL_REQUIRES, _POSTGRESQL_PREFERS, _POSTGRESQL_NOW),
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
        moment timestamptz := date_trunc('milliseconds', clock_timestamp());
        step bigint := coalesce((SELECT CASE WHEN value ~ '^[0-9]{1,15}$' THEN CAST(value AS bigint) END
                                 FROM fleet_meta WHERE name = 'age_ms'), 0);
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
        IF octet_length(NEW.payload_json::text) > 1048576 THEN
            RAISE EXCEPTION 'fleet_inbox: payload_json of more than 1048576 bytes: store a path or a key instead';
        END IF;
        SELECT * INTO handler FROM task_handler WHERE name = NEW.task;
        in_queue := coalesce(NEW.queue, handler.queue, 'default');
        INSERT INTO claim_lane (queue, task, capability_key, created_at)
        VALUES (in_queue, NEW.task, coalesce(handler.requires_json::text, '{}'), moment)
        ON CONFLICT (queue, task, capability_key, assigned_worker) DO NOTHING;
        SELECT lane_id INTO lane FROM claim_lane
        WHERE queue = in_queue AND task = NEW.task AND assigned_worker = ''
            AND capability_key = coalesce(handler.requires_json::text, '{}');
        INSERT INTO work_queue (lane_id, queue, task, payload_json, priority, rank, max_attempts, timeout_seconds,
            retry_json, requires_json, idempotency_key, created_at)
        VALUES (lane, in_queue, NEW.task, coalesce(NEW.payload_json, '{}'::json), coalesce(NEW.priority, 0),
            CASE WHEN step > 0 THEN CAST(extract(epoch FROM moment) * 1000 AS bigint)
                - coalesce(NEW.priority, 0) * step ELSE -coalesce(NEW.priority, 0) END,
            coalesce(handler.max_attempts, 3), handler.timeout_seconds,
            handler.retry_json, handler.requires_json, NEW.idempotency_key, moment)
        ON CONFLICT (task, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER fleet_inbox_insert INSTEAD OF INSERT ON fleet_inbox
    FOR EACH ROW EXECUTE FUNCTION fleet_inbox_insert()
    """,
)

_CHANGED_VIEWS = ("fleet_inbox", "fleet_claimable", "fleet_status", "fleet_tasks")


def _is_postgresql(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _make_views_anew(connection: Connection, statements: Iterable[str]) -> None:
    for view in _CHANGED_VIEWS:
        connection.exec_driver_sql(f"DROP VIEW {view}")
    if _is_postgresql(connection):
        connection.exec_driver_sql("DROP FUNCTION fleet_inbox_insert()")
    for statement in statements:
        # The driver gets the text as it stands: colons mean nothing to it.
        connection.exec_driver_sql(statement)


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, tables=_NEW_TABLES)
    for column in ("sweep_lane", "sweep_id"):
        op.add_column("maintenance", Column(column, BigId, nullable=False, server_default=text("0")))
    connection.exec_driver_sql(
        "UPDATE work_queue SET dedupe_scope = 'open' WHERE dedupe_key IS NOT NULL AND dedupe_scope IS NULL"
    )
    _drop_queue_indexes("ix_work_queue_due", "ix_work_queue_blocked", "uq_work_queue_dedupe")
    _queue_index("ix_work_queue_due", ("available_at", "lane_id"), "status = 'scheduled'")
    _queue_index("ix_work_queue_blocked", ("lane_id", "id"), "status = 'blocked'")
    _queue_index(
        "ix_work_queue_key",
        ("concurrency_key", "status", "blocked_reason", "rank", "id"),
        f"concurrency_key IS NOT NULL AND {_OPEN}",
    )
    _queue_index("ix_work_queue_deadline", ("deadline_at",), f"deadline_at IS NOT NULL AND {_WAITING}")
    _queue_index("ix_work_queue_failed", ("id",), "status = 'failed'")
    _queue_index("ix_work_queue_batch", ("batch_id",), "batch_id IS NOT NULL")
    _queue_index("ix_work_queue_batch_open", ("batch_id",), f"batch_id IS NOT NULL AND {_OPEN}")
    _queue_index("uq_work_queue_dedupe", ("task", "dedupe_key"), _DEDUPE, unique=True)
    _make_views_anew(connection, _POSTGRESQL_VIEWS if _is_postgresql(connection) else _SQLITE_VIEWS)
    # A release of before would never let go the tasks that depend on others.
    _set_oldest_reader(connection, revision)


def _set_oldest_reader(connection: Connection, oldest: str) -> None:
    connection.execute(text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest})


# What a release of before could not hold, or would leave lying for ever.
_UNHOLDABLE = {
    "open tasks share a dedupe key with another of their handler": f"""SELECT coalesce(sum(n), 0) FROM (
        SELECT count(*) AS n FROM work_queue WHERE {_DEDUPE_BEFORE} GROUP BY task, dedupe_key HAVING count(*) > 1) d""",
    "blocked tasks wait for others": "SELECT count(*) FROM work_queue WHERE status = 'blocked'",
    "open tasks prefer some workers": f"""SELECT count(*) FROM work_queue WHERE {_OPEN} AND lane_id IN
        (SELECT lane_id FROM claim_lane WHERE replace(capability_key, '"prefers":{{', '') <> capability_key)""",
}


def _check_holdable(connection: Connection) -> None:
    """Raise SchemaMismatch while there are rows that the schema of before cannot hold."""
    for what, query in _UNHOLDABLE.items():
        if number := connection.exec_driver_sql(query).scalar_one():
            raise SchemaMismatch(
                f"schema {down_revision} cannot hold what is there: {number} {what}: cancel them, or let them end"
            )


def downgrade() -> None:
    connection = op.get_bind()
    _check_holdable(connection)
    first = _first()
    # All but the first, `fleet_workers`, which is the same in both.
    before = first._POSTGRESQL_VIEWS if _is_postgresql(connection) else first._SQLITE_VIEWS
    _make_views_anew(connection, before[1:])
    _drop_queue_indexes(
        "uq_work_queue_dedupe",
        "ix_work_queue_batch_open",
        "ix_work_queue_batch",
        "ix_work_queue_failed",
        "ix_work_queue_deadline",
        "ix_work_queue_key",
        "ix_work_queue_blocked",
        "ix_work_queue_due",
    )
    _queue_index("ix_work_queue_due", ("available_at",), "status = 'scheduled'")
    _queue_index("ix_work_queue_blocked", ("lane_id", "rank", "id"), "status = 'blocked'")
    _queue_index("uq_work_queue_dedupe", ("task", "dedupe_key"), _DEDUPE_BEFORE, unique=True)
    for column in ("sweep_id", "sweep_lane"):
        op.drop_column("maintenance", column)
    metadata.drop_all(connection, tables=_NEW_TABLES)
    _set_oldest_reader(connection, "0001")


def _first() -> Any:
    """Return the migration before this one, which is frozen too and has the views of before."""
    spec = importlib.util.spec_from_file_location("fleet_migration_0001", Path(__file__).with_name("0001_first.py"))
    if spec is None or spec.loader is None:
        raise SchemaMismatch("the first migration is missing: install sqlfleet again")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
