"""What a database holds, as numbers that can be compared with another's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from fleet.storage.copying.counters import last_id
from fleet.storage.copying.rows import batches
from fleet.storage.copying.shapes import shapes
from fleet.storage.database import Transaction

_MODULUS = 1 << 256
Progress = Callable[[str, str, int], None]
"""Told what is done (`copied`, `checked`), with which table, and how many rows of it so far."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a table holds.

    Attributes:
        rows: how many rows.
        checksum: of all their values, whatever their order; 64 hexadecimal digits.
        last_id: the highest id that was ever given out; None where ids are not given out in turn.
    """

    rows: int
    checksum: str
    last_id: int | None


def tallies(transaction: Transaction, shown: str, progress: Progress) -> dict[str, Tally]:
    """Read a whole database, and return what each table holds.

    Args:
        transaction: reads it.
        shown: what messages call the database.
        progress: is told of every batch.
    """
    found = {}
    for shape in shapes():
        count = total = 0
        for batch in batches(transaction, shape, shown):
            count += len(batch)
            # A sum does not depend on the order, which the two databases do not share for texts.
            total += sum(_digest(repr(row)) for row in batch)
            progress("checked", shape.table, count)
        found[shape.table] = Tally(count, f"{total % _MODULUS:064x}", last_id(transaction, shape))
    return found


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def differing(one: dict[str, Tally], other: dict[str, Tally]) -> list[str]:
    """Return the tables that are not equal."""
    return sorted(table for table in one if one[table] != other[table])
