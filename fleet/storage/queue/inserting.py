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

ALWAYS = ("lane_id", "queue", "task", "status", "rank", "priority", "created_at", "max_attempts")
# NULL in most rows: what no task of a statement has is left out of it, and costs nothing.
SELDOM = (
    "blocked_reason",
    "available_at",
    "deadline_at",
    "retry_json",
    "timeout_seconds",
    "dedupe_key",
    "dedupe_scope",
    "idempotency_key",
    "concurrency_key",
    "requires_json",
    "prefers_json",
    "batch_id",
    "parent_id",
)


def _insert_text(columns: Iterable[str]) -> str:
    names = ("id", "payload_json", *columns)
    return f"INSERT INTO work_queue ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


@lru_cache(maxsize=64)
def _inserting_one(seldom: tuple[str, ...]) -> Statement:
    return Statement(_insert_text((*ALWAYS, *seldom)))


@lru_cache(maxsize=64)
def _inserting_many(seldom: tuple[str, ...]) -> Statement:
    # A row each time would cost SQLite twice as much: what a statement sets up, the list of statuses that the CHECK
    # compares and the counter of ids, it sets up and writes once.
    names = (*ALWAYS, *seldom)
    into = f"INSERT INTO work_queue (id, payload_json, {', '.join(names)})"
    values = ", ".join(f":{name}" for name in names)
    typed = ", ".join(f"CAST(:{name} AS json)" if name.endswith("_json") else f":{name}" for name in names)
    return Statement(
        f"{into} SELECT :first + key, value, {values} FROM json_each(:payloads)",
        f"""{into} SELECT added.id, CAST(added.payload AS json), {typed}
        FROM unnest(CAST(:ids AS bigint[]), CAST(:payloads AS text[])) AS added (id, payload)""",
    )


_INSERT_UNLESS_THERE = Statement(f"{_insert_text((*ALWAYS, *SELDOM))} ON CONFLICT DO NOTHING")
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


def new_ids(transaction: Transaction, count: int) -> Sequence[int]:
    """Return ids for so many new tasks, rising."""
    if transaction.is_sqlite:
        # The write lock is held: nobody else can take these.
        last = int(transaction.value(_LAST_ID))
        return range(last + 1, last + 1 + count)
    return [int(row[0]) for row in transaction.rows(_NEXT_IDS, count=count)]


def insert_alike(transaction: Transaction, row: Row, ids: Sequence[int], payloads: Sequence[str]) -> None:
    """Insert tasks that share a row, each with its id and payload; the ids must be those of one `new_ids`."""
    statement = _inserting_many(_used([row]))
    for start in range(0, len(ids), AT_ONCE):
        some, inline = ids[start : start + AT_ONCE], _inline(payloads[start : start + AT_ONCE])
        if transaction.is_sqlite:
            transaction.rows(statement, first=some[0], payloads=json.dumps(inline), **row)
        else:
            transaction.rows(statement, ids=list(some), payloads=inline, **row)
    _insert_large(transaction, zip(ids, payloads, strict=True))


def insert_each(transaction: Transaction, rows: Sequence[tuple[Row, int, str]]) -> None:
    """Insert tasks of different rows, each given as (row, id, payload)."""
    if not rows:
        return
    statement = _inserting_one(_used([row for row, _, _ in rows]))
    inline = _inline([payload for _, _, payload in rows])
    transaction.many(
        statement,
        [{**row, "id": task_id, "payload_json": text} for (row, task_id, _), text in zip(rows, inline, strict=True)],
    )
    _insert_large(transaction, ((task_id, payload) for _, task_id, payload in rows))


def insert_keyed(transaction: Transaction, row: Row, task_id: int, payload: str) -> int:
    """Insert a task that has a key; return its id, or the id of the one that has the key already.

    The index decides. On PostgreSQL the insert waits for a transaction that holds the key; if the one that had it
    ends in between, the insert is tried again.
    """
    for _ in range(_KEY_ATTEMPTS):
        if transaction.touched(_INSERT_UNLESS_THERE, **row, id=task_id, payload_json=_inline([payload])[0]):
            _insert_large(transaction, [(task_id, payload)])
            return task_id
        found = transaction.value(
            _EXISTING, task=row["task"], idempotency_key=row["idempotency_key"], dedupe_key=row["dedupe_key"]
        )
        if found is not None:
            return int(found)
    raise ConflictError(f"task {row['task']}: its key changed hands {_KEY_ATTEMPTS} times: enqueue it again")


def _used(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(name for name in SELDOM if any(row[name] is not None for row in rows))


def _inline(payloads: Sequence[str]) -> Sequence[str | None]:
    if max(map(len, payloads)) <= INLINE_PAYLOAD_BYTES:
        return payloads
    return [payload if len(payload) <= INLINE_PAYLOAD_BYTES else None for payload in payloads]


def _insert_large(transaction: Transaction, payloads: Iterable[tuple[int, str]]) -> None:
    large = [
        {"id": task_id, "payload_json": payload} for task_id, payload in payloads if len(payload) > INLINE_PAYLOAD_BYTES
    ]
    if large:
        transaction.many(_INSERT_PAYLOAD, large)
