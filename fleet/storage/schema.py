"""Which schema a database has, and bringing it to the present one.

The check reads one row. Alembic, whose import costs as much as SQLAlchemy's, is loaded only to change a schema.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import ConflictError, DatabaseError, DatabaseMissing, SchemaMismatch
from fleet.storage import seal
from fleet.storage.database import Database, Transaction, original
from fleet.storage.sql import Statement
from fleet.storage.upkeep import live_workers

REVISION = "0008"
VERSION_TABLE = "fleet_schema_version"

_VERSION = Statement(f"SELECT version_num FROM {VERSION_TABLE}")
_OLDEST_READER = Statement("SELECT value FROM fleet_meta WHERE name = 'oldest_reader'")
_IS_THERE = Statement(
    f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{VERSION_TABLE}'",
    f"SELECT 1 WHERE to_regclass('{VERSION_TABLE}') IS NOT NULL",
)
_OTHER_TABLE = Statement(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' LIMIT 1",
    """SELECT table_name FROM information_schema.tables
    WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' LIMIT 1""",
)
_LOCK = Statement("SELECT 1", "SELECT pg_advisory_xact_lock(7021004001)")


def current(database: Database) -> str | None:
    """Return the database's schema version, None when it has no Fleet tables."""
    return database.read(_current)


def _current(transaction: Transaction) -> str | None:
    if transaction.value(_IS_THERE) is None:
        return None
    version = transaction.value(_VERSION)
    return str(version) if version is not None else None


def check(database: Database, *, writes: bool = True) -> None:
    """Raise unless this release can use the database as it is.

    Args:
        database: the database.
        writes: whether it is going to be written to.

    Raises:
        DatabaseMissing: it has no Fleet tables.
        SchemaMismatch: its schema is older, or newer than this release may read.
        DatabaseSealed: it is going to be written to, and its fleet is elsewhere.
    """
    version, sealed = database.read(_state)
    if version is None:
        raise DatabaseMissing(f"{database.shown} has no Fleet tables: make them with `fleet init`")
    if version < REVISION:
        raise SchemaMismatch(
            f"{database.shown} has schema {version}, this release needs {REVISION}: "
            "stop the workers, then run `fleet db upgrade`"
        )
    if version > REVISION:
        oldest = database.read(lambda transaction: transaction.value(_OLDEST_READER))
        if oldest is None or str(oldest) > REVISION:
            raise SchemaMismatch(
                f"{database.shown} has schema {version}, newer than this release knows ({REVISION}): upgrade sqlfleet"
            )
    if writes:
        seal.refuse(sealed, database.shown)


def _state(transaction: Transaction) -> tuple[str | None, seal.Seal | None]:
    version = _current(transaction)
    return version, None if version is None else seal.found(transaction)


def check_exactly(database: Database) -> None:
    """Raise unless the database has this release's schema and no other; a sealed one will do.

    Raises:
        DatabaseMissing: it has no Fleet tables.
        SchemaMismatch: its schema is older or newer.
    """
    check(database, writes=False)
    version = current(database)
    if version != REVISION:
        raise SchemaMismatch(f"{database.shown} has schema {version}, and this needs {REVISION}: upgrade sqlfleet")


def make(database: Database, adopt: bool) -> bool:
    """Make the present schema where there is none.

    Args:
        database: the database.
        adopt: do so in a database that holds tables of somebody else, too.

    Returns:
        Whether this call made it: of several processes that try at once, one did.

    Raises:
        DatabaseMissing: it holds other tables, and `adopt` is False.
    """
    # From one snapshot: another process may be making them at this moment.
    version, other = database.read(lambda transaction: (_current(transaction), transaction.value(_OTHER_TABLE)))
    if version is not None:
        return False
    if other is not None and not adopt:
        raise DatabaseMissing(
            f"{database.shown} has tables of another program and none of Fleet's: give another --db-path, or add "
            "Fleet's with `fleet init`"
        )
    return upgrade(database)


def upgrade(database: Database, revision: str = "head", *, force: bool = False) -> bool:
    """Bring the schema to `revision` in one transaction; return whether there was anything to do.

    Of several processes that try, one migrates; the others wait for its lock, read the version again, and find nothing
    left to do.

    Args:
        database: the database.
        revision: the schema wanted.
        force: do so even while workers are live.

    Raises:
        SchemaMismatch: the database is newer than this release.
        ConflictError: workers are live, and `force` is False.
    """

    def step(transaction: Transaction) -> bool:
        transaction.rows(_LOCK)
        version = _current(transaction)
        if revision == "head" and version == REVISION:
            return False
        if version is not None:
            _check_upgradable(transaction, database.shown, version, force)
        _run(lambda command, config: command.upgrade(config, revision), transaction)
        return True

    return database.write(step, durable=True, alembic=True)


def _check_upgradable(transaction: Transaction, shown: str, version: str, force: bool) -> None:
    if version > REVISION:
        raise SchemaMismatch(
            f"{shown} has schema {version}, newer than this release knows ({REVISION}): upgrade sqlfleet"
        )
    if not force and (live := live_workers(transaction)):
        raise ConflictError(
            f"{shown}: {live} live {'worker uses' if live == 1 else 'workers use'} schema {version}: stop every "
            "fleet-worker (SIGTERM drains it; so does `fleet-scaler --target-workers 0` of their release) and try "
            "again, or upgrade under them with --force"
        )


def downgrade(database: Database, revision: str) -> None:
    """Take the schema back to `revision` (`base` removes every table), in one transaction."""
    database.write(
        lambda transaction: _run(lambda command, config: command.downgrade(config, revision), transaction),
        durable=True,
        alembic=True,
    )


def _run(step: Callable[[Any, Any], None], transaction: Transaction) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(migrations()))
    config.attributes["connection"] = transaction.connection
    try:
        step(command, config)
    except CommandError as error:
        raise SchemaMismatch(
            f"the schema cannot be changed: {error}: this release does not know the database's schema"
        ) from error
    except Exception as error:
        raise original(error) from error


def migrations() -> Path:
    """Return the folder of the migrations: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise DatabaseError(f"the migrations are missing beside {package}: install sqlfleet again")
