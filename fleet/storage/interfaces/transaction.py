"""The caller's own transaction."""

from __future__ import annotations

from typing import Any, Protocol


class Transaction(Protocol):
    """An open write transaction of the caller, for `enqueue` and for the caller's own rows."""

    @property
    def connection(self) -> Any:
        """The SQLAlchemy connection, on which the caller may execute statements of its own."""
