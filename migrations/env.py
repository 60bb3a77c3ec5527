"""Runs the migrations on the connection that Fleet gives, or on the database that FLEET_DB names."""

from __future__ import annotations

from alembic import context

from fleet.storage.schema import VERSION_TABLE
from fleet.storage.tables import metadata
from fleet.storage.views import VIEWS


def _include(_object: object, name: str | None, kind: str, _reflected: bool, _compared: object) -> bool:
    """Compare Fleet's own tables only: a database may hold others."""
    return kind != "table" or (name in metadata.tables and name not in VIEWS)


def _migrate(connection: object) -> None:
    context.configure(
        connection=connection,  # type: ignore[arg-type]
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        include_object=_include,
        # Both databases can roll back a change of schema: all of an upgrade happens, or nothing of it.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _migrate(given)
else:
    from fleet.config import locate
    from fleet.storage.store import SqlStorage

    with SqlStorage.database_at(locate(None)).transaction() as transaction:
        _migrate(transaction.connection)
