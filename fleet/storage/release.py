"""Giving running tasks back: one statement for every way in which a claim ends without its holder finishing.

A release gives the attempt back. A rescue charges the task that was being executed (whoever
dies is charged for what it executed, not for what it merely held). A task interrupted too often is condemned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.domain.execution import Fence
from fleet.domain.retry import MAX_INTERRUPTIONS
from fleet.storage.database import Transaction
from fleet.storage.sql import Statement

_ENDED = f"interruptions + :interrupted > {MAX_INTERRUPTIONS}"

_GIVE_BACK = f"""
UPDATE work_queue SET
    status = CASE WHEN {_ENDED} THEN 'failed' ELSE 'pending' END,
    error_kind = CASE WHEN {_ENDED} THEN 'interrupted_too_often' ELSE error_kind END,
    error = CASE WHEN {_ENDED} THEN :reason ELSE error END,
    finished_at = CASE WHEN {_ENDED} THEN CAST(:now AS {{time}}) END,
    attempt = CASE WHEN attempt > 0 THEN attempt - 1 ELSE 0 END,
    interruptions = interruptions + :interrupted,
    worker = NULL, incarnation = NULL, claimed_at = NULL, started_at = NULL, progress = NULL, progress_text = NULL
FROM ({{fences}}) f
WHERE work_queue.id = f.task_id AND work_queue.claim_token = f.claim_token
    AND work_queue.status = 'running' AND work_queue.incarnation = :incarnation
RETURNING work_queue.id
"""

FENCES_SQLITE = """SELECT json_extract(value, '$[0]') AS task_id, json_extract(value, '$[1]') AS claim_token
    FROM json_each(:fences)"""
FENCES_POSTGRESQL = """SELECT CAST(value->>0 AS bigint) AS task_id, CAST(value->>1 AS bigint) AS claim_token
    FROM json_array_elements(CAST(:fences AS json))"""

_RELEASE = Statement(
    _GIVE_BACK.format(fences=FENCES_SQLITE, time="TEXT"),
    _GIVE_BACK.format(fences=FENCES_POSTGRESQL, time="timestamptz"),
)

_CHARGE = """
UPDATE work_queue SET
    status = CASE WHEN attempt < max_attempts THEN 'pending' ELSE 'failed' END,
    error_kind = 'worker_lost', error = :reason,
    finished_at = CASE WHEN attempt < max_attempts THEN NULL ELSE CAST(:now AS {time}) END,
    worker = NULL, incarnation = NULL, claimed_at = NULL, started_at = NULL, progress = NULL, progress_text = NULL
FROM ({fences}) f
WHERE work_queue.id = f.task_id AND work_queue.claim_token = f.claim_token
    AND work_queue.status = 'running' AND work_queue.incarnation = :incarnation
RETURNING work_queue.id
"""

_LOSE = Statement(
    _CHARGE.format(fences=FENCES_SQLITE, time="TEXT"),
    _CHARGE.format(fences=FENCES_POSTGRESQL, time="timestamptz"),
)

_HELD = Statement(
    "SELECT id, claim_token, started_at IS NOT NULL FROM work_queue "
    "WHERE worker = :worker AND status = 'running' AND incarnation = :incarnation ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that runs in an incarnation's name."""

    fence: Fence
    started: bool


def fences_json(fences: Iterable[Fence]) -> str:
    """Return fences as the JSON parameter of a statement, in id order: the order in which rows are locked."""
    return json.dumps(sorted((fence.task_id, fence.claim_token) for fence in fences))


def held_by(transaction: Transaction, worker_id: str, incarnation: str) -> tuple[HeldTask, ...]:
    """Return the tasks that run in this incarnation's name, by id."""
    rows = transaction.rows(_HELD, worker=worker_id, incarnation=incarnation)
    return tuple(HeldTask(Fence(task_id, token), bool(started)) for task_id, token, started in rows)


def release(
    transaction: Transaction, incarnation: str, fences: Sequence[Fence], *, interrupted: bool, reason: str
) -> tuple[int, ...]:
    """Give tasks back with their attempt; return the ids that were still held."""
    if not fences:
        return ()
    rows = transaction.rows(
        _RELEASE,
        fences=fences_json(fences),
        incarnation=incarnation,
        interrupted=1 if interrupted else 0,
        reason=f"interrupted more than {MAX_INTERRUPTIONS} times, last: {reason}",
        now=transaction.now,
    )
    return tuple(sorted(row[0] for row in rows))


def charge(transaction: Transaction, incarnation: str, fences: Sequence[Fence], reason: str) -> tuple[int, ...]:
    """Give tasks back with their attempt spent; the last attempt ends them `failed/worker_lost`."""
    if not fences:
        return ()
    rows = transaction.rows(
        _LOSE, fences=fences_json(fences), incarnation=incarnation, reason=reason, now=transaction.now
    )
    return tuple(sorted(row[0] for row in rows))


def rescue_held(transaction: Transaction, worker_id: str, incarnation: str, reason: str) -> tuple[int, ...]:
    """Give back all that a lost incarnation held: what had been started is charged, the rest is an interruption."""
    held = held_by(transaction, worker_id, incarnation)
    charged = charge(transaction, incarnation, [task.fence for task in held if task.started], reason)
    released = release(
        transaction,
        incarnation,
        [task.fence for task in held if not task.started],
        interrupted=True,
        reason=reason,
    )
    return tuple(sorted((*charged, *released)))
