"""What happened to workers, groups, commands and pools, as rows; never one per task."""

from __future__ import annotations

from fleet.domain.jsontext import printable
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement

_INSERT = Statement("INSERT INTO fleet_event (at, kind, subject, text) VALUES (:now, :kind, :subject, :text)")

EVENTS_AFTER = Statement(
    "SELECT event_id, at, kind, subject, text FROM fleet_event WHERE event_id > :after ORDER BY event_id LIMIT :limit"
)


def record_event(transaction: Transaction, kind: str, subject: str, text: str) -> None:
    """Write one event in the transaction that makes it true."""
    transaction.rows(_INSERT, now=transaction.now, kind=kind, subject=subject, text=printable(text, 2_000))
