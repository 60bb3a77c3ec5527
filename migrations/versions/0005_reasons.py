"""Why scalers decided what they did: codes beside the words, and a sample of what changes all the time.

A frozen copy: what a migration made must not change when the tables do.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NEW = ("codes_json", "inputs_json")


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for name in _NEW:
        # A CHECK that stands with its column goes with it: SQLite cannot drop one of a table.
        check = f" CONSTRAINT ck_scaling_decision_{name} CHECK ({name} IS NULL OR json_valid({name}))"
        kind = "VARCHAR" + check if is_sqlite else "JSON"
        op.execute(f"ALTER TABLE scaling_decision ADD COLUMN {name} {kind}")
    # A release of before would write decisions whose codes nobody knows.
    _set_oldest_reader(revision)


def downgrade() -> None:
    for name in reversed(_NEW):
        op.drop_column("scaling_decision", name)
    _set_oldest_reader(down_revision)


def _set_oldest_reader(oldest: str) -> None:
    op.get_bind().execute(
        sa.text("UPDATE fleet_meta SET value = :oldest WHERE name = 'oldest_reader'"), {"oldest": oldest}
    )
