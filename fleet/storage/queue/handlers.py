"""Handler defaults as rows: what a decorator says holds for every way of enqueuing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from fleet.domain.retry import RetryPolicy
from fleet.domain.task import HandlerDefaults
from fleet.storage.database import Transaction
from fleet.storage.rows import dumps, loads
from fleet.storage.sql import Row, Statement

_COLUMNS = "name, queue, requires_json, max_attempts, timeout_seconds, retry_json, signature"
_NAMED = Statement(
    f"SELECT {_COLUMNS} FROM task_handler WHERE name IN (SELECT value FROM json_each(:names))",
    f"SELECT {_COLUMNS} FROM task_handler WHERE name IN "
    "(SELECT value FROM json_array_elements_text(CAST(:names AS json)))",
)
_ALL = Statement(f"SELECT {_COLUMNS} FROM task_handler ORDER BY name")
_STORE = Statement(
    """
    INSERT INTO task_handler (name, queue, requires_json, max_attempts, timeout_seconds, retry_json, signature,
        updated_at)
    VALUES (:name, :queue, :requires_json, :max_attempts, :timeout_seconds, :retry_json, :signature, :now)
    ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, requires_json = excluded.requires_json,
        max_attempts = excluded.max_attempts, timeout_seconds = excluded.timeout_seconds,
        retry_json = excluded.retry_json, signature = excluded.signature, updated_at = excluded.updated_at
    """
)


def defaults_of(transaction: Transaction, names: Iterable[str]) -> Mapping[str, HandlerDefaults]:
    """Return the stored defaults of these handlers, by name."""
    rows = transaction.records(_NAMED, names=json.dumps(sorted(names)))
    return {row["name"]: _defaults(row) for row in rows}


def all_defaults(transaction: Transaction) -> tuple[HandlerDefaults, ...]:
    """Return all stored defaults, by name."""
    return tuple(_defaults(row) for row in transaction.records(_ALL))


def store_defaults(transaction: Transaction, handlers: Iterable[HandlerDefaults]) -> None:
    """Store these defaults."""
    for handler in sorted(handlers, key=lambda handler: handler.name):
        transaction.rows(_STORE, **_values(handler), now=transaction.now)


def _defaults(row: Row) -> HandlerDefaults:
    retry = loads(row["retry_json"])
    return HandlerDefaults(
        name=row["name"],
        queue=row["queue"],
        requires=loads(row["requires_json"]),
        max_attempts=row["max_attempts"],
        timeout=row["timeout_seconds"],
        retry=RetryPolicy.from_json(retry) if retry is not None else None,
        signature=row["signature"],
    )


def _values(handler: HandlerDefaults) -> Row:
    return {
        "name": handler.name,
        "queue": handler.queue,
        "requires_json": dumps(dict(handler.requires)) if handler.requires else None,
        "max_attempts": handler.max_attempts,
        "timeout_seconds": handler.timeout,
        "retry_json": dumps(handler.retry.as_json()) if handler.retry else None,
        "signature": handler.signature,
    }


def normal(handler: HandlerDefaults) -> Row:
    """Return what distinguishes one handler's defaults from another's."""
    return _values(handler)
