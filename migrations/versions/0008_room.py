"""PostgreSQL leaves room beside rows that beat, and vacuums tasks and their index of what waits in good time.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# A group's heartbeat changes all its workers' rows at once: each needs room for a second version in its own page, or
# every beat moves it to another one, with a new entry in each index.
_ROOM = {"worker_registry": 50, "worker_group": 50, "worker_adapter": 50}
# A share of a table with a long history is too long to wait for: claims step over what has been claimed since.
_VACUUM = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.02",
    "vacuum_index_cleanup": "on",
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, share in _ROOM.items():
            op.execute(f"ALTER TABLE {table} SET (fillfactor = {share})")
        op.execute(f"ALTER TABLE work_queue SET ({', '.join(f'{name} = {value}' for name, value in _VACUUM.items())})")
    _set_oldest_reader(revision)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in _ROOM:
            op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
        op.execute(f"ALTER TABLE work_queue RESET ({', '.join(_VACUUM)})")
    _set_oldest_reader(down_revision)


def _set_oldest_reader(oldest: str) -> None:
    op.get_bind().execute(
        sa.text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest}
    )
