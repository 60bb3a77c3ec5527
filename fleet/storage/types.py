"""Column types: how a time and a JSON text look in each database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, String
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from fleet.clock import truncated
from fleet.storage.times import moment_of, stamp

TIME_PATTERN = "[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]Z"

BigId = BigInteger().with_variant(Integer, "sqlite")


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC time: fixed-width text on SQLite, `timestamptz(3)` on PostgreSQL.

    PostgreSQL rounds what is finer than milliseconds; values are truncated before they are sent.
    """

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type for `dialect`."""
        if dialect.name == "postgresql":
            # Imported here: it costs a tenth of a start, and SQLite needs none of it.
            from sqlalchemy.dialects import postgresql

            # Not through type_descriptor(), which forgets the precision.
            return postgresql.TIMESTAMP(timezone=True, precision=3)
        return dialect.type_descriptor(String())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return what the driver is given."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive time {value!r}: every time names its zone")
        return truncated(value.astimezone(UTC)) if dialect.name == "postgresql" else stamp(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return an aware UTC time."""
        if value is None:
            return None
        return moment_of(value) if isinstance(value, str) else value.astimezone(UTC)


class _Json(UserDefinedType[str]):
    """PostgreSQL's `json`, read and written as text: `jsonb` would refuse and rewrite content."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


class JsonText(TypeDecorator[str]):
    """JSON as text: `json` on PostgreSQL, TEXT with a CHECK on SQLite. Python sees the text."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type for `dialect`."""
        return dialect.type_descriptor(_Json() if dialect.name == "postgresql" else String())
