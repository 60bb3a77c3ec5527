"""What an adapter's place offers only where a launch asks for it.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


_NEW_COLUMN = {
    # A CHECK that stands with its column goes with it: SQLite cannot drop one of a table.
    "sqlite": "ALTER TABLE worker_adapter ADD COLUMN on_request_json VARCHAR "
    "CONSTRAINT ck_worker_adapter_on_request_json CHECK (on_request_json IS NULL OR json_valid(on_request_json))",
    "postgresql": "ALTER TABLE worker_adapter ADD COLUMN on_request_json JSON",
}


def upgrade() -> None:
    op.execute(_NEW_COLUMN[op.get_bind().dialect.name])
    _set_oldest_reader(revision)


def downgrade() -> None:
    op.drop_column("worker_adapter", "on_request_json")
    _set_oldest_reader(down_revision)


def _set_oldest_reader(oldest: str) -> None:
    op.get_bind().execute(
        sa.text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest}
    )
