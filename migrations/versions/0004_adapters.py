"""Adapters that are processes of their own: who they are, for how long they are believed, why one is paused.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NEW_COLUMNS = {
    "worker_adapter": (
        ("boot_id", sa.String()),
        ("pid_namespace", sa.String()),
        ("pid", sa.Integer()),
        ("pid_start_ticks", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        ("lease_seconds", sa.Float()),
        ("reason", sa.String()),
        ("resizes", sa.Boolean()),
    ),
    "worker_group": (("reference", sa.String()),),
}


def upgrade() -> None:
    for table, columns in _NEW_COLUMNS.items():
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind))
    # A release of before would act for an adapter for which a process stands.
    _set_oldest_reader(revision)


def downgrade() -> None:
    for table, columns in _NEW_COLUMNS.items():
        for name, _ in reversed(columns):
            op.drop_column(table, name)
    _set_oldest_reader(down_revision)


def _set_oldest_reader(oldest: str) -> None:
    op.get_bind().execute(
        sa.text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest}
    )
