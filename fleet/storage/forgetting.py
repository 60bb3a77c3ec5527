"""Deleting what ended long ago: looked for in a read first, so that a pass that finds nothing takes no write lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fleet.storage.database import Database, Transaction
from fleet.storage.sql import Statement


class Ended:
    """Rows of one table that are deleted once they have ended before the time `:cutoff`.

    Args:
        table: the table.
        key: its key.
        where: which rows; they are called `e`.
        oldest: look at the smallest keys alone, as many as may be deleted. For tables whose keys rise with time: there
            is no index by time, and a long history of what is too young would be read to its end by every pass.
    """

    __slots__ = ("any", "delete")

    def __init__(self, table: str, key: str, where: str, *, oldest: bool = False) -> None:
        rows = f"(SELECT * FROM {table} ORDER BY {key} LIMIT :limit)" if oldest else table
        found = f"SELECT e.{key} FROM {rows} AS e WHERE {where}"
        self.any = Statement(f"{found} LIMIT 1")
        self.delete = Statement(f"DELETE FROM {table} WHERE {key} IN ({found} LIMIT :limit)")


def forget(database: Database, kinds: Sequence[Ended], older_than: float, limit: int) -> int:
    """Delete what ended more than `older_than` seconds ago, at most `limit` rows of each kind; return how many."""

    def look(transaction: Transaction) -> list[Ended]:
        cutoff = transaction.now - timedelta(seconds=older_than)
        return [kind for kind in kinds if transaction.rows(kind.any, cutoff=cutoff, limit=limit)]

    found = database.read(look)

    def delete(transaction: Transaction) -> int:
        cutoff = transaction.now - timedelta(seconds=older_than)
        return sum(transaction.touched(kind.delete, cutoff=cutoff, limit=limit) for kind in found)

    return database.write(delete) if found else 0
