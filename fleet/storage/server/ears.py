"""What a PostgreSQL server tells on the connection that its process works with anyway."""

from __future__ import annotations

from typing import Any

CHANNELS = ("fleet_tasks", "fleet_orders")
"""What becomes claimable, while somebody listens; orders to workers and groups, always."""


class Ears:
    """What the process's connection has heard. One thread uses the connection, and asks.

    Attributes:
        is_deaf: whether nothing can be heard, since a pool of connections does not pass it on.
    """

    def __init__(self) -> None:
        self._connection: Any = None
        self._heard = False
        self.is_deaf = False

    def attach(self, connection: Any) -> None:
        """Listen on a new connection of the driver: whatever came before it may have been missed."""
        connection.add_notify_handler(self._hear)
        for channel in CHANNELS:
            connection.execute(f"LISTEN {channel}")
        self._connection, self._heard, self.is_deaf = connection, True, False

    def be_deaf(self) -> None:
        """Take note that a new connection cannot listen."""
        self._connection, self._heard, self.is_deaf = None, True, True

    def _hear(self, _notification: Any) -> None:
        self._heard = True

    def fileno(self) -> int | None:
        """Return the connection's descriptor; None while there is none, or it is broken."""
        connection = self._connection
        if connection is None or connection.closed:
            return None
        number: int = connection.fileno()
        return number

    def take(self) -> bool:
        """Return whether anything was heard since the last call, without waiting; a broken connection may have."""
        if self._connection is not None:
            self._read(self._connection)
        heard, self._heard = self._heard, False
        return heard

    def _read(self, connection: Any) -> None:
        import psycopg

        try:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                self._heard = True
        except psycopg.Error:
            # Its descriptor would be readable for ever; the next transaction finds out, and another one attaches.
            self._connection, self._heard = None, True
