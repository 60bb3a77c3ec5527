"""Rows of tasks into their tables: many alike in one statement, others one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fleet.domain.task import INLINE_PAYLOAD_BYTES
from fleet.errors import ConflictError
from fleet.storage.database import Transaction
from fleet.storage.guards import DEDUPE_OPEN
from fleet.storage.sql import Row, Statement

AT_ONCE = 1_000
"""Rows of one statement, at most: beyond that its list of payloads leaves the processor's cache."""

BLOCK = 250
"""Rows of one statement whose payloads are bound one by one."""

COLUMNS = (
    *("lane_id", "queue", "task", "status", "blocked_reason", "rank", "priority", "available_at", "created_at"),
    *("deadline_at", "max_attempts", "retry_json", "timeout_seconds", "dedupe_key", "dedupe_scope"),
    *("idempotency_key", "concurrency_key", "requires_json", "prefers_json", "batch_id", "parent_id"),
)
TABLE_DEFAULTS = {"queue": "default", "status": "pending", "rank": 0, "priority": 0, "max_attempts": 3}
"""What the table gives these columns by itself, and the others NULL: left out of a statement, it costs less."""


def _insert_text(columns: Iterable[str]) -> str:
    names = ("id", "payload_json", *columns)
    return f"INSERT INTO work_queue ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


@lru_cache(maxsize=64)
def _inserting_each(columns: tuple[str, ...]) -> Statement:
    return Statement(_insert_text(columns))


# A statement for each row would cost SQLite twice as much: what a statement sets up (the list of statuses that the
# CHECK compares with) and what it writes at its end (the counter of ids) it sets up and writes once.
@lru_cache(maxsize=64)
def _inserting_alike(columns: tuple[str, ...], with_ids: bool) -> Statement:
    names = ", ".join(columns)
    values = ", ".join(f":{name}" for name in columns)
    typed = ", ".join(f"CAST(:{name} AS json)" if name.endswith("_json") else f":{name}" for name in columns)
    with_id, own_id = ("id, ", ":first + key, ") if with_ids else ("", "")
    return Statement(
        f"""INSERT INTO work_queue ({with_id}payload_json, {names}) SELECT {own_id}value, {values}
        FROM json_each(:texts)""",
        f"""INSERT INTO work_queue (id, payload_json, {names}) SELECT added.id, CAST(added.payload AS json), {typed}
        FROM unnest(CAST(:ids AS bigint[]), CAST(:texts AS text[])) AS added (id, payload)""",
    )


@lru_cache(maxsize=64)
def _inserting_block(columns: tuple[str, ...]) -> str:
    """Return SQLite's own text: bound one by one, payloads need not be made one JSON text and taken apart again."""
    shared = ", ".join(f"?{place}" for place in range(1, len(columns) + 1))
    return (
        f"INSERT INTO work_queue ({', '.join(columns)}, payload_json) "
        f"SELECT {shared}, column1 FROM (VALUES {', '.join(['(?)'] * BLOCK)})"
    )


_INSERT_UNLESS_THERE = Statement(f"{_insert_text(COLUMNS)} ON CONFLICT DO NOTHING")
_INSERT_PAYLOAD = Statement("INSERT INTO work_payload (task_id, payload_json) VALUES (:id, :payload_json)")
_EXISTING_TEXT = f"""
    SELECT id FROM work_queue WHERE task = :task AND idempotency_key = {{idempotency}}
    UNION ALL
    SELECT id FROM work_queue WHERE task = :task AND dedupe_key = {{dedupe}} AND dedupe_key IS NOT NULL
        AND {DEDUPE_OPEN}
    LIMIT 1
    """
_EXISTING = Statement(
    _EXISTING_TEXT.format(idempotency=":idempotency_key", dedupe=":dedupe_key"),
    _EXISTING_TEXT.format(idempotency="CAST(:idempotency_key AS text)", dedupe="CAST(:dedupe_key AS text)"),
)
_LAST_ID = Statement("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'work_queue'), 0)")
_NEXT_IDS = Statement("SELECT nextval(pg_get_serial_sequence('work_queue', 'id')) FROM generate_series(1, :count)")

_KEY_ATTEMPTS = 5

_texts = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def new_ids(transaction: Transaction, count: int) -> Sequence[int]:
    """Return ids for so many new tasks, rising."""
    if transaction.is_sqlite:
        # The write lock is held: nobody else can take these.
        last = int(transaction.value(_LAST_ID))
        return range(last + 1, last + 1 + count)
    return [int(row[0]) for row in transaction.rows(_NEXT_IDS, count=count)]


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns in which any of these rows has another value than the table gives by itself."""
    return tuple(name for name in COLUMNS if any(row[name] != TABLE_DEFAULTS.get(name) for row in rows))


def insert_run(transaction: Transaction, row: Row, payloads: Sequence[str]) -> Sequence[int]:
    """Insert tasks that share a row, each with its payload; return their ids."""
    if not transaction.is_sqlite:
        ids = new_ids(transaction, len(payloads))
        insert_alike(transaction, row, ids, payloads)
        return ids
    columns, inline = columns_of([row]), _inline(payloads)
    blocks = len(inline) // BLOCK * BLOCK
    last, block, shared = 0, _inserting_block(columns), [row[name] for name in columns]
    for start in range(0, blocks, BLOCK):
        last = transaction.inserted_by_place(block, shared, inline[start : start + BLOCK])
    if blocks < len(inline):
        last = transaction.inserted(_inserting_alike(columns, False), texts=_texts(inline[blocks:]), **row)
    # The write lock is held: nobody else took ids in between.
    given = range(last + 1 - len(payloads), last + 1)
    _insert_large(transaction, given, payloads, inline)
    return given


def insert_alike(transaction: Transaction, row: Row, ids: Sequence[int], payloads: Sequence[str]) -> None:
    """Insert tasks that share a row, each with its id (of one `new_ids`) and payload."""
    statement, inline = _inserting_alike(columns_of([row]), True), _inline(payloads)
    for start in range(0, len(ids), AT_ONCE):
        some, texts = ids[start : start + AT_ONCE], inline[start : start + AT_ONCE]
        if transaction.is_sqlite:
            transaction.rows(statement, first=some[0], texts=_texts(texts), **row)
        else:
            transaction.rows(statement, ids=list(some), texts=list(texts), **row)
    _insert_large(transaction, ids, payloads, inline)


def insert_each(transaction: Transaction, rows: Sequence[tuple[Row, int, str]]) -> None:
    """Insert tasks of different rows, each given as (row, id, payload)."""
    if not rows:
        return
    shared, ids, payloads = zip(*rows, strict=True)
    inline = _inline(payloads)
    values = [{**row, "id": own, "payload_json": text} for row, own, text in zip(shared, ids, inline, strict=True)]
    transaction.many(_inserting_each(columns_of(shared)), values)
    _insert_large(transaction, ids, payloads, inline)


def insert_keyed(transaction: Transaction, row: Row, task_id: int, payload: str) -> int:
    """Insert a task that has a key; return its id, or the id of the one that has the key already.

    The index decides. On PostgreSQL the insert waits for a transaction that holds the key; if the one that had it
    ends in between, the insert is tried again.
    """
    for _ in range(_KEY_ATTEMPTS):
        inline = _inline([payload])
        if transaction.touched(_INSERT_UNLESS_THERE, **row, id=task_id, payload_json=inline[0]):
            _insert_large(transaction, [task_id], [payload], inline)
            return task_id
        found = transaction.value(
            _EXISTING, task=row["task"], idempotency_key=row["idempotency_key"], dedupe_key=row["dedupe_key"]
        )
        if found is not None:
            return int(found)
    raise ConflictError(f"task {row['task']}: its key changed hands {_KEY_ATTEMPTS} times: enqueue it again")


def _inline(payloads: Sequence[str]) -> Sequence[str | None]:
    """Return the payloads, None in place of those that are too large for the row."""
    if max(map(len, payloads)) <= INLINE_PAYLOAD_BYTES:
        return payloads
    return [payload if len(payload) <= INLINE_PAYLOAD_BYTES else None for payload in payloads]


def _insert_large(
    transaction: Transaction, ids: Sequence[int], payloads: Sequence[str], inline: Sequence[str | None]
) -> None:
    """Store the payloads that are not inline."""
    if inline is payloads:
        return
    triples = zip(ids, payloads, inline, strict=True)
    transaction.many(
        _INSERT_PAYLOAD, [{"id": own, "payload_json": payload} for own, payload, text in triples if text is None]
    )
