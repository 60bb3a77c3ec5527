"""Whether what a server tells reaches a client of a pool of connections between its transactions."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any
from uuid import uuid4

PATIENCE = 1.0
"""Seconds for which an echo is waited for; where none comes, the queue is looked at instead."""


def hears(connection: Any, another: Callable[[], Any]) -> bool:
    """Return whether the server's session stays with a connection while no transaction is open.

    Another connection notifies meanwhile. Only a session that stays with its client can pass that on; nothing else
    proves it, since a pool may give a client the same session by chance again and again.

    Args:
        connection: the driver's connection, on which no transaction is open.
        another: opens one more.
    """
    channel = f"fleet_echo_{uuid4().hex}"
    connection.execute(f"LISTEN {channel}")
    connection.commit()
    try:
        return _is_told(connection, channel, another)
    finally:
        connection.execute(f"UNLISTEN {channel}")
        connection.commit()


def _is_told(connection: Any, channel: str, another: Callable[[], Any]) -> bool:
    import psycopg

    with suppress(psycopg.Error), closing(another()) as other:
        # Its answer is not waited for: a pool that is full gives none.
        other.pgconn.send_query(f"NOTIFY {channel}".encode())
        other.pgconn.flush()
        if select.select((connection.fileno(),), (), (), PATIENCE)[0]:
            connection.pgconn.consume_input()
            return connection.pgconn.notifies() is not None
    return False
