"""Ranking open tasks anew, when waiting has become worth more or less."""

from __future__ import annotations

from fleet.domain.rank import rank
from fleet.storage.database import Database, Transaction
from fleet.storage.guards import OPEN
from fleet.storage.meta import age_ms
from fleet.storage.parameters import by_id
from fleet.storage.sql import Statement, time_of

_STRETCH = 20_000
_AT_ONCE = 1_000

_LAST = Statement("SELECT coalesce(max(id), 0) FROM work_queue")
# Open tasks have no index by id: the table is walked in stretches of ids.
_OPEN = Statement(
    f"""SELECT id, priority, created_at, rank FROM work_queue
    WHERE id > :after AND id <= :upto AND {OPEN} ORDER BY id"""
)
_SET = by_id(f"UPDATE work_queue SET rank = :rank WHERE id = :id AND {OPEN}")


def rank_anew(database: Database) -> int:
    """Give every open task the rank that it would get now, in bounded steps; return how many changed."""
    last = int(database.read(lambda transaction: transaction.value(_LAST)))
    changed = 0
    for after in range(0, last, _STRETCH):
        ranks = database.read(lambda transaction, after=after: _wrong(transaction, after))  # type: ignore[misc]
        for start in range(0, len(ranks), _AT_ONCE):
            some = ranks[start : start + _AT_ONCE]
            database.write(lambda transaction, some=some: transaction.many(_SET, some))  # type: ignore[misc]
            changed += len(some)
    return changed


def _wrong(transaction: Transaction, after: int) -> list[dict[str, int]]:
    worth = age_ms(transaction)
    rows = transaction.rows(_OPEN, after=after, upto=after + _STRETCH)
    wanted = (
        (task_id, rank(priority, time_of(created), worth), present) for task_id, priority, created, present in rows
    )
    return [{"id": task_id, "rank": new} for task_id, new, present in wanted if new != present]
