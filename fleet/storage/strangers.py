"""Who keeps a PostgreSQL server from removing dead rows: sessions with an old transaction open."""

from __future__ import annotations

from fleet.storage.database import Database, Transaction
from fleet.storage.interfaces import OpenTransaction
from fleet.storage.sql import Statement

# Without the right to see others' sessions (pg_read_all_stats) a role sees when its own began, and nobody else's.
_OPEN = Statement(
    "SELECT 1 WHERE false",
    """SELECT pid, coalesce(application_name, ''), coalesce(state, ''),
        CAST(extract(epoch FROM clock_timestamp() - xact_start) AS double precision)
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND xact_start IS NOT NULL
    ORDER BY xact_start LIMIT 10""",
)


def open_transactions(database: Database) -> tuple[OpenTransaction, ...]:
    """Return the oldest transactions of others that the database's dead rows are kept for; none on SQLite."""

    def look(transaction: Transaction) -> tuple[OpenTransaction, ...]:
        rows = transaction.rows(_OPEN)
        return tuple(OpenTransaction(pid, name, state, seconds) for pid, name, state, seconds in rows)

    return database.read(look)
