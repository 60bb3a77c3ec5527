"""How long the two ends of a connection to a PostgreSQL server believe each other without a sign of life.

A host that is cut off, or without power, says nothing. By default its processes would wait a quarter of an hour for a
reply, and the server would keep the locks of its open transactions for two hours. A lease is 20 s by default: when the
tasks of such a host move, what it had locked is free.
"""

from __future__ import annotations

CONNECT_TIMEOUT = 10
"""Seconds for a connection to come about."""

KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Seconds without a sign of life until one is asked for, seconds between two such questions, and how many of them stay
unanswered: 11 seconds in all. The kernel asks and answers: a process that is busy, or stopped, is there."""

UNHEARD_MS = 10_000
"""Milliseconds after which what was sent, and whose arrival nobody has confirmed, ends the connection."""

OF_THE_SERVER = {**{f"tcp_{name}": value for name, value in KEEPALIVES.items()}, "tcp_user_timeout": UNHEARD_MS}
"""Has the server ask in its session; on a Unix socket it does nothing."""


def terms(url: str) -> dict[str, int]:
    """Return what the driver is told about its end; what the URL says itself stands.

    Args:
        url: a SQLAlchemy URL for psycopg.
    """
    # Loaded here because what opens a file needs none of it.
    from sqlalchemy import make_url

    told = {"connect_timeout": CONNECT_TIMEOUT, **KEEPALIVES, "tcp_user_timeout": UNHEARD_MS}
    given = make_url(url).query
    return {name: value for name, value in told.items() if name not in given}
