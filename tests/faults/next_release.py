"""Runs a command line as the next release would, whose schema is one step ahead: `python -m tests.faults.next_release
OLDEST_READER MODULE ...`. OLDEST_READER is the oldest schema whose releases may go on using the database.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path

from fleet.storage import schema

REVISION = "0009"

_MIGRATION = '''"""Adds a column, slowly."""

import os
import time

from alembic import op
from sqlalchemy import Column, String

revision = "{revision}"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("work_queue", Column("of_next_release", String()))
    op.execute("UPDATE fleet_meta SET value = '{oldest}' WHERE name = 'oldest_reader'")
    if marker := os.environ.get("TEST_MIGRATING"):
        open(marker, "w").close()
    time.sleep(0.5)
'''


def main() -> None:
    """Put the next migration beside the present ones, and run."""
    oldest, name, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        migrations = Path(directory, "migrations")
        shutil.copytree(schema.migrations(), migrations, ignore=shutil.ignore_patterns("__pycache__"))
        (migrations / "versions/0009_next.py").write_text(_MIGRATION.format(revision=REVISION, oldest=oldest))
        schema.REVISION = REVISION
        schema.migrations = lambda: migrations
        sys.argv = [name, *arguments]
        importlib.import_module(name).run()


if __name__ == "__main__":
    main()
