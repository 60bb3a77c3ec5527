"""What time brings: due tasks enter, late ones fail, large fan-outs go on; and a sweep that mends."""

from __future__ import annotations

from fleet.storage.database import Database, Transaction
from fleet.storage.guards import OPEN, WAITING, status_in
from fleet.storage.queue import batches, deadlines, dependencies
from fleet.storage.queue.entering import Entrant, enter
from fleet.storage.queue.follow_up import follow_up, next_releases
from fleet.storage.queue.limits import KeyGate, all_limits
from fleet.storage.sql import Statement, time_of

_ANYTHING = Statement(
    f"""SELECT 1 WHERE EXISTS (SELECT 1 FROM work_queue WHERE status = 'scheduled' AND available_at <= :now)
        OR EXISTS (SELECT 1 FROM work_release)
        OR EXISTS (SELECT 1 FROM work_queue WHERE deadline_at IS NOT NULL AND {status_in(WAITING)}
            AND deadline_at <= :now)"""
)
_DUE_TEXT = """SELECT id, concurrency_key, blocked_reason FROM work_queue
    WHERE status = 'scheduled' AND available_at <= :now ORDER BY available_at LIMIT :limit"""
_DUE = Statement(_DUE_TEXT, f"{_DUE_TEXT} FOR UPDATE SKIP LOCKED")

_NEXT_TIMES = Statement(
    """SELECT (SELECT min(available_at) FROM work_queue WHERE status = 'scheduled'),
        (SELECT min(next_tick_at) FROM work_schedule WHERE paused = false),
        (SELECT min(paused_until) FROM queue_setting WHERE paused = true AND paused_until > :now),
        (SELECT count(*) FROM (SELECT 1 FROM work_release LIMIT 1) AS r)"""
)

_CURSOR = Statement("SELECT sweep_lane, sweep_id FROM maintenance WHERE id = 1")
_MOVE_CURSOR = Statement("UPDATE maintenance SET sweep_lane = :lane, sweep_id = :id WHERE id = 1")
_BLOCKED = Statement(
    """SELECT lane_id, id, blocked_reason, concurrency_key, batch_id FROM work_queue
    WHERE status = 'blocked' AND (lane_id, id) > (:lane, :id) ORDER BY lane_id, id LIMIT :limit"""
)
_UNENDED_BATCHES = Statement(
    f"""SELECT batch_id FROM work_batch b WHERE b.closed_at IS NOT NULL AND b.ended_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM work_queue WHERE batch_id = b.batch_id AND {OPEN}) LIMIT :limit"""
)
_KEYS_AFTER = Statement(f"""SELECT min(concurrency_key) FROM work_queue WHERE concurrency_key > :after AND {OPEN}""")


def advance(database: Database, limit: int) -> int:
    """Do what has become due; takes the write lock only when there is any of it."""
    if not database.read(lambda transaction: transaction.rows(_ANYTHING, now=transaction.now)):
        return 0
    return database.write(lambda transaction: _advance(transaction, limit))


def _advance(transaction: Transaction, limit: int) -> int:
    late = deadlines.fail(transaction, deadlines.past(transaction, limit))
    promoted = promote(transaction, limit)
    return late + promoted + next_releases(transaction, limit)


def promote(transaction: Transaction, limit: int) -> int:
    """Let due scheduled tasks in; return how many."""
    due = transaction.rows(_DUE, now=transaction.now, limit=limit)
    entrants = [Entrant(task_id, None, key, timed=reason == "rate") for task_id, key, reason in due]
    return enter(transaction, KeyGate(transaction), entrants)


def next_due_in(transaction: Transaction) -> float | None:
    """Return seconds until something becomes due by itself, 0 when overdue, None when nothing will."""
    *found, unreleased = transaction.rows(_NEXT_TIMES, now=transaction.now)[0]
    if unreleased:
        return 0.0
    times = [time_of(value) for value in found if value is not None]
    if not times:
        return None
    return max(0.0, (min(times) - transaction.now).total_seconds())


def sweep(database: Database, limit: int) -> int:
    """Look at the next blocked tasks; reads first, and writes only what has to be mended or moved."""
    cursor, rows, limited = database.read(lambda transaction: _look(transaction, limit))
    if not rows and cursor == (0, 0) and not limited:
        return 0
    return database.write(lambda transaction: _sweep(transaction, limit))


def _look(transaction: Transaction, limit: int) -> tuple[tuple[int, int], list[tuple[object, ...]], bool]:
    lane, task_id = transaction.rows(_CURSOR)[0]
    rows = transaction.rows(_BLOCKED, lane=lane, id=task_id, limit=limit)
    return (lane, task_id), rows, bool(all_limits(transaction)) or bool(transaction.rows(_UNENDED_BATCHES, limit=1))


def _sweep(transaction: Transaction, limit: int) -> int:
    lane, task_id = transaction.rows(_CURSOR)[0]
    rows = transaction.rows(_BLOCKED, lane=lane, id=task_id, limit=limit)
    following = (rows[-1][0], rows[-1][1]) if len(rows) == limit else (0, 0)
    if following != (lane, task_id):
        transaction.rows(_MOVE_CURSOR, lane=following[0], id=following[1])
    gate = KeyGate(transaction)
    children = [row[1] for row in rows if row[2] == "parents"]
    mended = dependencies.mend(transaction, gate, children) if children else dependencies.Released(0)
    follow_up(transaction, mended.ended, gate)
    admitted = gate.admit({row[3] for row in rows if row[2] == "limit" and row[3] is not None})
    batches.end(transaction, gate, (row[0] for row in transaction.rows(_UNENDED_BATCHES, limit=limit)))
    return mended.count + admitted + _trim(transaction, gate, limit)


def _trim(transaction: Transaction, gate: KeyGate, limit: int) -> int:
    """Block what a lowered limit leaves too much of, key by key."""
    if not all_limits(transaction):
        return 0
    held, key = 0, ""
    for _ in range(limit):
        key = transaction.value(_KEYS_AFTER, after=key)
        if key is None:
            break
        held += gate.trim(key)
    return held
