"""That nobody writes: who is active in a database, whether it is empty, and locks on all of it."""

from __future__ import annotations

from fleet.errors import ConflictError
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement
from fleet.storage.tables import metadata
from fleet.storage.upkeep import live_workers

_PASSES = Statement("SELECT count(*) FROM scheduler WHERE lease_expires_at >= :now")
_ADAPTERS = Statement("SELECT count(*) FROM worker_adapter WHERE lease_expires_at >= :now")
_LAUNCHES = Statement(
    """SELECT count(*) FROM worker_group
    WHERE (status IN ('requested', 'launching') AND boot_deadline_at >= :now)
        OR (status IN ('running', 'stopping') AND lease_expires_at >= :now)"""
)
_PATIENCE = (
    Statement("SET LOCAL idle_in_transaction_session_timeout = 0"),
    Statement("SET LOCAL statement_timeout = 0"),
)
_DESCRIBING = ("fleet_meta", "maintenance")
"""Tables that have rows in an empty fleet, too."""


def hold(transaction: Transaction) -> None:
    """Let nobody else write to any table until the transaction ends; others go on reading.

    On SQLite a write transaction does so by itself.
    """
    if transaction.is_sqlite:
        return
    for statement in _PATIENCE:
        transaction.rows(statement)
    transaction.rows(Statement(f"LOCK TABLE {', '.join(sorted(metadata.tables))} IN EXCLUSIVE MODE"))


def check_idle(transaction: Transaction, shown: str) -> None:
    """Raise ConflictError while workers, adapters or passes of a scaler are active."""
    counts = {
        "worker": live_workers(transaction),
        "worker group": int(transaction.value(_LAUNCHES, now=transaction.now)),
        "scaler pass": int(transaction.value(_PASSES, now=transaction.now)),
        "adapter": int(transaction.value(_ADAPTERS, now=transaction.now)),
    }
    active = [f"{count} {_plural(name, count)}" for name, count in counts.items() if count]
    if active:
        raise ConflictError(
            f"{shown}: {', '.join(active)} active: scale to 0 (`fleet-scaler --target-workers 0`), stop adapters and "
            "the cron jobs of scalers, wait until their leases are over, then copy again"
        )


def _plural(name: str, count: int) -> str:
    return name if count == 1 else f"{name}es" if name.endswith("s") else f"{name}s"


def check_empty(transaction: Transaction, shown: str) -> None:
    """Raise ConflictError unless a database holds no more than one that was just made."""
    for table in sorted(metadata.tables):
        if table not in _DESCRIBING and transaction.rows(Statement(f"SELECT 1 FROM {table} LIMIT 1")):
            raise ConflictError(
                f"{shown} is not empty ({table} has rows): a fleet can be copied only to a database that is missing, "
                "or was just made with `fleet init`"
            )


def empty(transaction: Transaction) -> None:
    """Delete every row of every table."""
    if not transaction.is_sqlite:
        transaction.rows(Statement(f"TRUNCATE {', '.join(sorted(metadata.tables))}"))
        return
    for table in reversed(metadata.sorted_tables):
        transaction.rows(Statement(f"DELETE FROM {table.name}"))
