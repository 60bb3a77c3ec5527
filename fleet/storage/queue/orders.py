"""What operators order of single tasks: cancel, retry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fleet.domain.task import FINAL_STATUSES, Answer, BlockedReason, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import DEDUPE_OPEN, WAITING, leaving
from fleet.storage.parameters import HELD_BY_EACH, by_id
from fleet.storage.queue import batches, dependencies
from fleet.storage.queue.changed import CHANGED_COLUMNS, Changed
from fleet.storage.queue.entering import entrance
from fleet.storage.queue.follow_up import follow_up
from fleet.storage.queue.limits import KeyGate
from fleet.storage.sql import Statement

_SEEN_TEXT = "SELECT id, status, task, concurrency_key, dedupe_key, worker FROM work_queue WHERE id = :id"
_SEEN = Statement(_SEEN_TEXT, f"{_SEEN_TEXT} FOR UPDATE")

_CANCEL = by_id(
    f"""UPDATE work_queue SET status = 'cancelled', blocked_reason = NULL, finished_at = :now,
        error = 'cancelled by request', error_kind = 'cancelled', cancel_requested = true
    WHERE id = :id AND {leaving(*WAITING, to=(TaskStatus.CANCELLED,))} RETURNING {CHANGED_COLUMNS}"""
)
_ASK = by_id("UPDATE work_queue SET cancel_requested = true WHERE id = :id AND status = 'running'")

_RETRIED = (TaskStatus.FAILED, TaskStatus.CANCELLED)
_RETRY = by_id(
    f"""UPDATE work_queue SET status = :status, blocked_reason = :reason, attempt = 0, interruptions = 0,
        cancel_requested = false, deadline_at = NULL, available_at = NULL, avoid_worker = NULL, worker = NULL,
        incarnation = NULL, claimed_at = NULL, started_at = NULL, finished_at = NULL, progress = NULL,
        progress_text = NULL
    WHERE id = :id AND {leaving(*_RETRIED, to=(TaskStatus.PENDING, TaskStatus.BLOCKED))}"""
)
_HOLDS_KEY = Statement(
    f"""SELECT id FROM work_queue WHERE task = :task AND dedupe_key = :key AND dedupe_key IS NOT NULL
        AND {DEDUPE_OPEN} LIMIT 1"""
)
_FAILED_TEXT = """SELECT id FROM work_queue WHERE status = 'failed' AND id > :after{conditions}
    ORDER BY id LIMIT :limit"""
_REQUESTS = Statement(
    """SELECT worker, id, claim_token FROM work_queue
    WHERE status = 'running' AND cancel_requested = true AND worker IN (SELECT value FROM json_each(:workers))""",
    f"SELECT q.worker, q.id, q.claim_token FROM {HELD_BY_EACH} WHERE q.cancel_requested",
)


def cancel(transaction: Transaction, task_ids: Iterable[int]) -> dict[int, Answer]:
    """Cancel tasks, or ask for their end where they run; return what that did, by id."""
    changed: list[Changed] = []
    answers = {task_id: _cancel(transaction, task_id, changed) for task_id in sorted(set(task_ids))}
    follow_up(transaction, changed)
    return answers


def _cancel(transaction: Transaction, task_id: int, changed: list[Changed]) -> Answer:
    before, row = _look(transaction, task_id)
    if before is None:
        return _missing(task_id)
    if before in FINAL_STATUSES:
        obeyed = before is TaskStatus.CANCELLED
        return Answer(task_id, before, before, f"task {task_id} is {before} already", obeyed)
    if before is TaskStatus.RUNNING:
        transaction.rows(_ASK, id=task_id)
        return Answer(task_id, before, before, f"task {task_id} runs at {row[5]}: it is asked to stop", True)
    changed += map(Changed.of, transaction.rows(_CANCEL, id=task_id, now=transaction.now))
    return Answer(task_id, before, TaskStatus.CANCELLED, f"task {task_id} was {before}: it is cancelled", True)


def retry(transaction: Transaction, task_ids: Iterable[int]) -> dict[int, Answer]:
    """Put ended tasks back into the queue; return what that did, by id."""
    wanted = sorted(set(task_ids))
    dependencies.hold_parents(transaction, wanted)
    gate, callbacks, keys = KeyGate(transaction), batches.awaiting(transaction, wanted), set[str]()
    # In id order: a parent that is retried too is open again before its children are looked at.
    answers = {task_id: _retry(transaction, gate, task_id, callbacks, keys) for task_id in wanted}
    gate.admit(keys)
    return {task_id: _as_it_is(transaction, answer) for task_id, answer in answers.items()}


def _retry(transaction: Transaction, gate: KeyGate, task_id: int, callbacks: frozenset[int], keys: set[str]) -> Answer:
    before, row = _look(transaction, task_id)
    if before is None:
        return _missing(task_id)
    if before not in _RETRIED:
        text = f"task {task_id} is {before}: only failed and cancelled ones are retried"
        return Answer(task_id, before, before, text, False)
    _, _, task, key, dedupe_key, _ = row
    if dedupe_key is not None:
        sibling = transaction.value(_HOLDS_KEY, task=task, key=dedupe_key)
        if sibling is not None:
            text = f"task {task_id} stays {before}: task {sibling} with the same dedupe key is open"
            return Answer(task_id, before, before, text, False)
    status, reason = entrance(gate, None, key, transaction.now)
    held_by = _held_by(transaction, task_id, callbacks)
    if held_by is not None:
        status, reason = TaskStatus.BLOCKED, held_by
    if reason is BlockedReason.LIMIT and key is not None:
        keys.add(key)
    transaction.rows(_RETRY, id=task_id, status=str(status), reason=None if reason is None else str(reason))
    return Answer(task_id, before, status, "", True)


def _held_by(transaction: Transaction, task_id: int, callbacks: frozenset[int]) -> BlockedReason | None:
    """Return what a task that comes back still has to wait for."""
    if task_id in callbacks:
        return BlockedReason.BATCH
    return BlockedReason.PARENTS if dependencies.waits(transaction, task_id) else None


def _as_it_is(transaction: Transaction, answer: Answer) -> Answer:
    """Return the answer with the status that the task has in the end: its key may have let it in at once."""
    if not answer.obeyed:
        return answer
    after, _ = _look(transaction, answer.task_id)
    return replace(answer, after=after, text=f"task {answer.task_id} was {answer.before}: it is {after} again")


def _look(transaction: Transaction, task_id: int) -> tuple[TaskStatus | None, tuple[Any, ...]]:
    rows = transaction.rows(_SEEN, id=task_id)
    return (TaskStatus(rows[0][1]), rows[0]) if rows else (None, ())


def _missing(task_id: int) -> Answer:
    return Answer(
        task_id, None, None, f"task {task_id}: there is no such task (finished ones are deleted in time)", False
    )


def failed(
    transaction: Transaction, after: int, limit: int, error_kind: str | None, task: str | None, queue: str | None
) -> list[int]:
    """Return the next failed tasks that match, by id."""
    wanted = {"error_kind": error_kind, "task": task, "queue": queue}
    given = {name: value for name, value in wanted.items() if value is not None}
    conditions = "".join(f" AND {name} = :{name}" for name in given)
    statement = Statement(_FAILED_TEXT.format(conditions=conditions))
    return [row[0] for row in transaction.rows(statement, after=after, limit=limit, **given)]


def requests(transaction: Transaction, workers: str) -> Sequence[tuple[Any, ...]]:
    """Return (worker, task id, claim token) of running tasks whose end is asked for; `workers` is a JSON list."""
    return transaction.rows(_REQUESTS, workers=workers)
