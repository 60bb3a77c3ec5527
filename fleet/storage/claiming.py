"""Claims: who may claim, which task is next, and the statement that makes it theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.storage.database import Transaction
from fleet.storage.rows import CLAIMED_COLUMNS, claimed_of
from fleet.storage.sql import Statement

# A status that is a bound parameter would keep SQLite from using the partial index: literals throughout.

_PASSED_OVER = "(avoid_worker IS NULL OR avoid_worker <> :worker OR available_at <= :avoided_until)"

_NEXT = Statement(
    f"""
    SELECT q.id, q.attempt + 1 < q.max_attempts AND q.interruptions = 0
    FROM json_each(:lanes) j JOIN work_queue q ON q.id IN (
        SELECT w.id FROM work_queue w
        WHERE w.status = 'pending' AND w.lane_id = json_extract(j.value, '$[0]') AND {_PASSED_OVER}
        ORDER BY w.rank, w.id LIMIT :limit)
    ORDER BY json_extract(j.value, '$[1]'), q.rank, q.id LIMIT :limit
    """,
    f"""
    SELECT q.id, q.attempt + 1 < q.max_attempts AND q.interruptions = 0
    FROM json_array_elements(CAST(:lanes AS json)) AS j (value) CROSS JOIN LATERAL (
        SELECT id, rank, attempt, max_attempts, interruptions FROM work_queue
        WHERE status = 'pending' AND lane_id = CAST(j.value->>0 AS bigint) AND {_PASSED_OVER}
        ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED) q
    ORDER BY CAST(j.value->>1 AS int), q.rank, q.id LIMIT :limit
    """,
)

_ANY = Statement(
    f"""
    SELECT 1 FROM json_each(:lanes) j WHERE EXISTS (
        SELECT 1 FROM work_queue
        WHERE status = 'pending' AND lane_id = json_extract(j.value, '$[0]') AND {_PASSED_OVER}) LIMIT 1
    """,
    f"""
    SELECT 1 FROM json_array_elements(CAST(:lanes AS json)) AS j (value) WHERE EXISTS (
        SELECT 1 FROM work_queue
        WHERE status = 'pending' AND lane_id = CAST(j.value->>0 AS bigint) AND {_PASSED_OVER}) LIMIT 1
    """,
)

_STANDING_COLUMNS = """SELECT status, status = 'active' AND NOT paused AND lease_expires_at >= :now
    FROM worker_registry WHERE worker_id = :worker AND incarnation = :incarnation"""
_STANDING = Statement(_STANDING_COLUMNS)
_STANDING_LOCKED = Statement(_STANDING_COLUMNS, f"{_STANDING_COLUMNS} FOR SHARE")

_MAX_LANE = Statement("SELECT coalesce(max(lane_id), 0) FROM claim_lane")

_CLAIM = f"""
UPDATE work_queue SET status = 'running', worker = :worker, incarnation = :incarnation,
    claim_token = claim_token + 1, attempt = attempt + 1, claimed_at = :now, started_at = {{started}},
    progress = NULL, progress_text = NULL, finished_at = NULL
WHERE status = 'pending' AND id IN ({{ids}})
RETURNING {CLAIMED_COLUMNS}
"""
_IDS_SQLITE = "SELECT value FROM json_each(:ids)"
_IDS_POSTGRESQL = "SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:ids AS json))"
_CLAIM_ALONE = Statement(
    _CLAIM.format(started=":now", ids=_IDS_SQLITE), _CLAIM.format(started=":now", ids=_IDS_POSTGRESQL)
)
_CLAIM_BATCH = Statement(
    _CLAIM.format(started="NULL", ids=_IDS_SQLITE), _CLAIM.format(started="NULL", ids=_IDS_POSTGRESQL)
)
_PAYLOAD = Statement("SELECT payload_json FROM work_payload WHERE task_id = :id")

Lanes = Sequence[tuple[int, int]]


def max_lane_id(transaction: Transaction) -> int:
    """Return the newest lane's id."""
    return int(transaction.value(_MAX_LANE))


def standing(transaction: Transaction, claimant: Claimant, *, locked: bool) -> tuple[str | None, bool]:
    """Return the claimant's stored status, and whether it may claim: active, not paused, within its lease.

    Locked, the row cannot be flagged before the claim commits (SQLite: the write lock; PostgreSQL: FOR SHARE).
    """
    rows = transaction.rows(
        _STANDING_LOCKED if locked else _STANDING,
        worker=claimant.worker_id,
        incarnation=claimant.incarnation,
        now=transaction.now,
    )
    return (rows[0][0], bool(rows[0][1])) if rows else (None, False)


def anything_to_claim(transaction: Transaction, claimant: Claimant, lanes: Lanes) -> bool:
    """Return whether a claim would find a task: an idle worker only reads."""
    return bool(lanes) and bool(transaction.rows(_ANY, lanes=json.dumps(lanes), **_avoided(transaction, claimant)))


def take(transaction: Transaction, claimant: Claimant, lanes: Lanes, limit: int) -> tuple[ClaimedTask, ...]:
    """Claim up to `limit` tasks; the caller has checked the claimant's standing in this transaction."""
    if not lanes or limit < 1:
        return ()
    candidates = transaction.rows(_NEXT, lanes=json.dumps(lanes), limit=limit, **_avoided(transaction, claimant))
    ids = _batch(candidates)
    if not ids:
        return ()
    rows = transaction.rows(
        _CLAIM_ALONE if len(ids) == 1 else _CLAIM_BATCH,
        ids=json.dumps(ids),
        worker=claimant.worker_id,
        incarnation=claimant.incarnation,
        now=transaction.now,
    )
    order = {task_id: place for place, task_id in enumerate(ids)}
    rows.sort(key=lambda row: order[row[0]])
    return tuple(claimed_of(row, _payload(transaction, row)) for row in rows)


def _batch(candidates: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return the leading tasks that may be claimed together.

    A task on its last attempt, or one that was interrupted before, comes alone: if it kills its worker, or the whole
    host, it must be known which one it was.
    """
    ids: list[int] = []
    for task_id, has_spare_attempts in candidates:
        if not has_spare_attempts:
            return ids or [task_id]
        ids.append(task_id)
    return ids


def _avoided(transaction: Transaction, claimant: Claimant) -> dict[str, Any]:
    return {
        "worker": claimant.worker_id,
        "avoided_until": transaction.now - timedelta(seconds=claimant.lease_seconds),
    }


def _payload(transaction: Transaction, row: tuple[Any, ...]) -> str:
    if row[4] is not None:
        return str(row[4])
    return str(transaction.value(_PAYLOAD, id=row[0]) or "null")
