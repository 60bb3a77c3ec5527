"""A sound row for every table."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, text
from sqlalchemy.types import Boolean, Float, Integer

from fleet.storage.interfaces import Storage
from fleet.storage.tables import metadata
from fleet.storage.types import JsonText, UtcTime

TIME = "2026-01-01T00:00:00.000Z"
TABLES = metadata.sorted_tables


def sample(table: Table) -> dict[str, Any]:
    """Return a row with a value in every column, that every constraint allows."""
    values: dict[str, Any] = {column.name: _value(column.type, str(column.name)) for column in table.columns}
    for column in table.columns:
        if column.server_default is not None and "check" in column.info:
            values[column.name] = str(getattr(column.server_default, "arg", ""))
    special: dict[str, dict[str, Any]] = {
        "worker_registry": {"heartbeat_interval_seconds": 5, "lease_seconds": 20, "health": "healthy"},
        "worker_command": {"kind": "restart"},
        "quarantine": {"scope": "worker"},
        "claim_lane": {"capability_key": "{}"},
        "work_queue": {"dedupe_scope": "open"},
        "work_attempt": {"outcome": "failed"},
        "work_schedule": {"cron": None},
        "work_schedule_tick": {"outcome": "enqueued"},
        "adapter_command": {"kind": "start_worker_group"},
        "maintenance": {"id": 1},
    }
    return values | special.get(table.name, {})


def _value(kind: Any, name: str) -> Any:
    if isinstance(kind, UtcTime):
        return TIME
    if isinstance(kind, JsonText):
        return "{}"
    if isinstance(kind, Boolean):
        return False
    if isinstance(kind, Integer | Float):
        return 1
    return name


def insert(connection: Connection, table: Table, values: Mapping[str, Any]) -> None:
    """Insert a row as plain SQL."""
    columns, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table.name} ({columns}) VALUES ({places})"), dict(values))


def fill(connection: Connection) -> None:
    """Put a row into every table."""
    for table in TABLES:
        connection.execute(text(f"DELETE FROM {table.name}"))
    for table in TABLES:
        insert(connection, table, sample(table))


def dialect_of(store: Storage) -> str:
    """Return the name of the store's dialect."""
    with store.transaction() as transaction:
        return str(transaction.connection.dialect.name)
