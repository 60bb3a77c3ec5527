"""PostgreSQL tells who listens: of tasks that can be claimed while somebody is idle, and of orders.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# NOTIFY takes a lock of the whole server at commit, so nothing is told while nobody listens. Which tasks become
# claimable is seen where their rows change: whoever changes them, in whatever language, tells of it.
_FUNCTIONS = (
    """
    CREATE FUNCTION fleet_tell_of_new_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM worker_group WHERE listens_until > statement_timestamp()) AND
            EXISTS (SELECT 1 FROM fresh WHERE status = 'pending') THEN
            PERFORM pg_notify('fleet_tasks', '');
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION fleet_tell_of_task() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM worker_group WHERE listens_until > statement_timestamp()) THEN
            PERFORM pg_notify('fleet_tasks', '');
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION fleet_tell_of_order() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('fleet_orders', '');
        RETURN NULL;
    END $$
    """,
)
_TRIGGERS = (
    (
        "fleet_new_tasks",
        "work_queue",
        "AFTER INSERT ON work_queue REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT "
        "EXECUTE FUNCTION fleet_tell_of_new_tasks()",
    ),
    (
        "fleet_claimable_task",
        "work_queue",
        "AFTER UPDATE OF status ON work_queue FOR EACH ROW "
        "WHEN (NEW.status = 'pending' AND OLD.status <> 'pending') EXECUTE FUNCTION fleet_tell_of_task()",
    ),
    (
        "fleet_worker_order",
        "worker_command",
        "AFTER INSERT ON worker_command FOR EACH STATEMENT EXECUTE FUNCTION fleet_tell_of_order()",
    ),
    (
        "fleet_worker_status",
        "worker_registry",
        "AFTER UPDATE OF status, paused ON worker_registry FOR EACH ROW "
        "WHEN (NEW.status = 'terminating' AND OLD.status <> 'terminating' OR NEW.paused <> OLD.paused) "
        "EXECUTE FUNCTION fleet_tell_of_order()",
    ),
    (
        "fleet_group_target",
        "worker_group",
        "AFTER UPDATE OF status, target_size ON worker_group FOR EACH ROW "
        "WHEN (NEW.status = 'stopping' AND OLD.status <> 'stopping' OR NEW.target_size <> OLD.target_size) "
        "EXECUTE FUNCTION fleet_tell_of_order()",
    ),
)
_NAMES = ("fleet_tell_of_new_tasks", "fleet_tell_of_task", "fleet_tell_of_order")


_TIME_PATTERN = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z"


def upgrade() -> None:
    connection = op.get_bind()
    _set_oldest_reader(revision)
    if connection.dialect.name != "postgresql":
        # Nobody listens there; the tables are the same.
        connection.exec_driver_sql(
            "ALTER TABLE worker_group ADD COLUMN listens_until VARCHAR CONSTRAINT ck_worker_group_listens_until "
            f"CHECK (listens_until IS NULL OR listens_until GLOB '{_TIME_PATTERN}')"
        )
        return
    op.add_column("worker_group", sa.Column("listens_until", postgresql.TIMESTAMP(timezone=True, precision=3)))
    for statement in _FUNCTIONS:
        connection.exec_driver_sql(statement)
    for name, _, text in _TRIGGERS:
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {text}")


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for name, table, _ in _TRIGGERS:
            connection.exec_driver_sql(f"DROP TRIGGER {name} ON {table}")
        for name in _NAMES:
            connection.exec_driver_sql(f"DROP FUNCTION {name}()")
    op.drop_column("worker_group", "listens_until")
    _set_oldest_reader(down_revision)


def _set_oldest_reader(oldest: str) -> None:
    op.get_bind().execute(
        sa.text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest}
    )
