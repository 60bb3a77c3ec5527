"""Ids that are given out in turn: where a copy goes on."""

from __future__ import annotations

from fleet.storage.copying.shapes import Shape
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement

_SQLITE_LAST = Statement("SELECT seq FROM sqlite_sequence WHERE name = :table")
_SQLITE_FORGET = Statement("DELETE FROM sqlite_sequence WHERE name = :table")
_SQLITE_SET = Statement("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)")
_NAME = Statement("SELECT pg_get_serial_sequence(:table, :column)")
_SET = Statement("SELECT setval(CAST(:sequence AS regclass), :value, :given)")


def last_id(transaction: Transaction, shape: Shape) -> int | None:
    """Return the highest id that a table has ever given out, 0 before the first; None where it gives out none."""
    if shape.counter is None:
        return None
    highest = int(transaction.value(Statement(f"SELECT coalesce(max({shape.counter}), 0) FROM {shape.table}")))
    if transaction.is_sqlite:
        given = transaction.value(_SQLITE_LAST, table=shape.table)
    else:
        sequence = transaction.value(_NAME, table=shape.table, column=shape.counter)
        given = transaction.value(Statement(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"))
    return max(highest, int(given or 0))


def set_last_id(transaction: Transaction, shape: Shape, last: int) -> None:
    """Have a table give out ids above `last`."""
    if transaction.is_sqlite:
        transaction.touched(_SQLITE_FORGET, table=shape.table)
        if last:
            transaction.touched(_SQLITE_SET, table=shape.table, last=last)
        return
    sequence = transaction.value(_NAME, table=shape.table, column=shape.counter)
    transaction.rows(_SET, sequence=sequence, value=max(last, 1), given=last > 0)
