"""What every table is made of: names of constraints, and the CHECKs that a column implies."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, Column, Integer, MetaData, String, Table

from fleet.storage.types import TIME_PATTERN, BigId, JsonText, UtcTime

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def values_of(states: type[StrEnum] | Iterable[StrEnum]) -> str:
    """Return states as a list of SQL literals."""
    return ", ".join(f"'{state}'" for state in states)


def status(states: type[StrEnum], default: StrEnum | None = None, name: str = "status") -> Column[Any]:
    """Return a column that holds one of `states`, and no other text.

    The CHECK is no `IN (...)`, which SQLite sets up as a table of its own for every statement: an insert took a quarter
    longer.
    """
    column: Column[Any] = Column(name, String, nullable=False, server_default=default)
    column.info["check"] = " OR ".join(f"{name} = '{state}'" for state in states)
    return column


def table(name: str, *columns: Any, **options: Any) -> Table:
    """Make a table and the CHECKs that its columns imply."""
    checks = []
    for column in columns:
        if not isinstance(column, Column):
            continue
        key = column.name
        if "check" in column.info:
            checks.append(CheckConstraint(column.info["check"], name=key))
        elif isinstance(column.type, UtcTime):
            guard = "" if not column.nullable else f"{key} IS NULL OR "
            checks.append(CheckConstraint(f"{guard}{key} GLOB '{TIME_PATTERN}'", name=key).ddl_if(dialect="sqlite"))
        elif isinstance(column.type, JsonText):
            guard = "" if not column.nullable else f"{key} IS NULL OR "
            checks.append(CheckConstraint(f"{guard}json_valid({key})", name=key).ddl_if(dialect="sqlite"))
    return Table(name, metadata, *columns, *checks, **options)


def process_columns() -> list[Column[Any]]:
    """Return which process it is: see `ProcessIdentity`."""
    return [
        Column("host", String),
        Column("boot_id", String),
        Column("pid_namespace", String),
        Column("pid", Integer),
        Column("pid_start_ticks", BigId),
    ]
