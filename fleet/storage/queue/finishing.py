"""How claims end: two fenced statements for any number of them, one for success, and one for everything else.

Whoever ends a claim without success (a failure, a release, a rescue, a cancel) says so with a `Finish`; what the row
says at that moment (`domain.ending`) decides what becomes of the task, and the attempt is kept in its history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

from fleet.domain.ending import Held, duplicate, settled
from fleet.domain.execution import Fence, Finish
from fleet.domain.task import FINAL_STATUSES, BlockedReason, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import WAITING, leaving, status_in
from fleet.storage.parameters import by_id, by_ids, ids_json
from fleet.storage.queue import avoidance, dependencies, history
from fleet.storage.queue.changed import CHANGED_COLUMNS, Changed
from fleet.storage.queue.follow_up import follow_up
from fleet.storage.queue.limits import KeyGate
from fleet.storage.sql import Statement, as_time
from fleet.storage.times import stamp

MINE = "work_queue.id = f.id AND work_queue.claim_token = f.token AND work_queue.incarnation = :incarnation"

TO_DONE = """UPDATE work_queue SET status = 'done', result_json = {result}, error = NULL, error_kind = NULL,
    traceback = NULL, started_at = coalesce(started_at, {started}), finished_at = :now, avoid_worker = NULL"""
STILL_RUNNING = f"work_queue.{leaving(TaskStatus.RUNNING, to=(TaskStatus.DONE,))}"
_DONE_TEXT = f"""{TO_DONE.format(result="f.result", started="f.started")} FROM ({{rows}}) f
WHERE {MINE} AND {STILL_RUNNING} RETURNING work_queue.claim_token, {CHANGED_COLUMNS}"""
_DONE = by_id(
    _DONE_TEXT.format(
        rows="""SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS token,
            json_extract(value, '$[2]') AS result, json_extract(value, '$[3]') AS started
        FROM json_each(:finishes)"""
    ),
    _DONE_TEXT.format(
        rows="""SELECT CAST(value->>0 AS bigint) AS id, CAST(value->>1 AS bigint) AS token,
            CAST(value->>2 AS json) AS result, CAST(value->>3 AS timestamptz) AS started
        FROM json_array_elements(CAST(:finishes AS json))"""
    ),
)

_DONE_ONE_TEXT = f"""{TO_DONE} WHERE id = :id AND claim_token = :token AND incarnation = :incarnation
    AND {STILL_RUNNING} RETURNING claim_token, {CHANGED_COLUMNS}"""
_DONE_ONE = by_id(
    _DONE_ONE_TEXT.format(result=":result", started=":started"),
    _DONE_ONE_TEXT.format(result="CAST(:result AS json)", started="CAST(:started AS timestamptz)"),
)

_ENDS = (
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
    TaskStatus.SCHEDULED,
    TaskStatus.PENDING,
    TaskStatus.BLOCKED,
)
_END_TEXT = f"""
UPDATE work_queue SET status = f.status, blocked_reason = f.reason, result_json = NULL,
    error = coalesce(f.error, work_queue.error),
    error_kind = CASE WHEN f.error IS NULL THEN work_queue.error_kind ELSE f.kind END,
    traceback = CASE WHEN f.error IS NULL THEN work_queue.traceback ELSE f.traceback END,
    available_at = coalesce(f.available, available_at),
    attempt = CASE WHEN f.back = 1 AND attempt > 0 THEN attempt - 1 ELSE attempt END,
    interruptions = interruptions + f.interrupted,
    started_at = CASE WHEN f.final = 1 THEN coalesce(started_at, f.started) END,
    finished_at = CASE WHEN f.final = 1 THEN CAST(:now AS {{time}}) END,
    worker = CASE WHEN f.final = 1 THEN worker END,
    incarnation = CASE WHEN f.final = 1 THEN work_queue.incarnation END,
    claimed_at = CASE WHEN f.final = 1 THEN claimed_at END,
    progress = CASE WHEN f.status IN ('pending', 'blocked') THEN NULL ELSE progress END,
    progress_text = CASE WHEN f.status IN ('pending', 'blocked') THEN NULL ELSE progress_text END,
    avoid_worker = CASE WHEN f.status = 'scheduled' THEN f.avoid ELSE avoid_worker END
FROM ({{rows}}) f
WHERE {MINE} AND work_queue.{leaving(TaskStatus.RUNNING, to=_ENDS)}
RETURNING work_queue.claim_token, {CHANGED_COLUMNS}
"""
_FIELDS = {
    "id": "bigint",
    "token": "bigint",
    "status": "text",
    "reason": "text",
    "error": "text",
    "kind": "text",
    "traceback": "text",
    "available": "timestamptz",
    "back": "int",
    "interrupted": "int",
    "final": "int",
    "started": "timestamptz",
    "avoid": "text",
}
_END = by_id(
    _END_TEXT.format(
        time="TEXT",
        rows="SELECT "
        + ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in _FIELDS)
        + " FROM json_each(:finishes)",
    ),
    _END_TEXT.format(
        time="timestamptz",
        rows=f"SELECT {', '.join(_FIELDS)} FROM json_to_recordset(CAST(:finishes AS json)) AS r ("
        + ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
        + ")",
    ),
)

_HELD_TEXT = """SELECT id, claim_token, attempt, max_attempts, interruptions, cancel_requested, deadline_at,
    started_at, worker, task, dedupe_key, dedupe_scope, concurrency_key
FROM work_queue WHERE id IN {ids} AND status = 'running' AND incarnation = :incarnation"""
_HELD = by_ids(_HELD_TEXT, f"{_HELD_TEXT} ORDER BY id FOR UPDATE")
_SIBLING = Statement(
    f"""SELECT id FROM work_queue WHERE task = :task AND dedupe_key = :key AND dedupe_key IS NOT NULL
        AND {status_in(WAITING)} LIMIT 1"""
)

Decide = Callable[[Held], Finish]


@dataclass(frozen=True, slots=True)
class _Row:
    """A running task, with what decides where it may go."""

    held: Held
    worker: str
    task: str
    dedupe_key: str | None
    dedupe_scope: str | None
    key: str | None


def write_finishes(transaction: Transaction, incarnation: str, finishes: Sequence[Finish]) -> frozenset[Fence]:
    """Write how tasks ended, and what follows from it.

    Returns:
        The fences whose claim still held. The others' rows are not touched.
    """
    if not finishes:
        return frozenset()
    done = [finish for finish in finishes if finish.status is TaskStatus.DONE]
    accepted, changed = _write_done(transaction, incarnation, done)
    if len(done) < len(finishes):
        others = {finish.fence: finish for finish in finishes if finish.status is not TaskStatus.DONE}
        decisions = [(fence, lambda _held, one=finish: one) for fence, finish in others.items()]
        more, more_changed = _write_ends(transaction, incarnation, decisions)
        accepted |= more
        changed += more_changed
    if changed:
        follow_up(transaction, changed)
    return frozenset(accepted)


def end_claims(
    transaction: Transaction, incarnation: str, decisions: Iterable[tuple[Fence, Decide]]
) -> tuple[int, ...]:
    """End claims without success, as each decision says of the row that it is shown; return the ids still held."""
    accepted, changed = _write_ends(transaction, incarnation, list(decisions))
    follow_up(transaction, changed)
    return tuple(sorted(fence.task_id for fence in accepted))


def _write_done(
    transaction: Transaction, incarnation: str, finishes: Sequence[Finish]
) -> tuple[set[Fence], list[Changed]]:
    if not finishes:
        return set(), []
    now = transaction.now
    seconds = now.timestamp()
    if len(finishes) == 1:
        only = finishes[0]
        written = transaction.rows(
            _DONE_ONE,
            id=only.fence.task_id,
            token=only.fence.claim_token,
            result=only.result_json,
            started=_start(seconds, only),
            incarnation=incarnation,
            now=now,
        )
    else:
        ordered = sorted(finishes, key=itemgetter(0))
        rows = [(*finish.fence, finish.result_json, _start(seconds, finish)) for finish in ordered]
        written = transaction.rows(_DONE, finishes=json.dumps(rows), incarnation=incarnation, now=now)
    if transaction.is_sqlite:
        return _written(written)
    # On PostgreSQL the statement may have waited for somebody who added a child; what it returns does not know of it.
    return _written(written, dependencies.parents_among(transaction, (row[1] for row in written)))


def _written(
    rows: Iterable[tuple[Any, ...]], parents: frozenset[int] = frozenset()
) -> tuple[set[Fence], list[Changed]]:
    accepted, changed = set(), []
    for token, task_id, status, key, batch_id, has_dependents in rows:
        accepted.add(Fence(task_id, token))
        # Of most tasks nothing follows: they have no key, no batch and no dependents.
        if key is not None or batch_id is not None or has_dependents or task_id in parents:
            changed.append(Changed.of((task_id, status, key, batch_id, has_dependents or task_id in parents)))
    return accepted, changed


def _write_ends(
    transaction: Transaction, incarnation: str, decisions: Sequence[tuple[Fence, Decide]]
) -> tuple[set[Fence], list[Changed]]:
    """Write ends of claims that did not succeed; each attempt goes into its task's history."""
    ids = ids_json(sorted({fence.task_id for fence, _ in decisions}))
    rows = {row.held.fence: row for row in map(_row, transaction.rows(_HELD, ids=ids, incarnation=incarnation))}
    returning = _Returning(transaction)
    ends: list[tuple[_Row, Finish]] = []
    for fence, decide in sorted(decisions, key=lambda decision: decision[0].task_id):
        row = rows.get(fence)
        if row is not None:
            finish = settled(decide(row.held), row.held, transaction.now)
            ends.append((row, returning.unless_taken(row, finish)))
    if not ends:
        return set(), []
    gate = KeyGate(transaction)
    values = [_values(transaction, gate, row, finish) for row, finish in ends]
    accepted, changed = _written(
        transaction.rows(_END, finishes=json.dumps(values), incarnation=incarnation, now=transaction.now)
    )
    history.add(
        transaction,
        [
            history.attempt_of(row.held, finish, row.worker, incarnation, transaction.now)
            for row, finish in ends
            if row.held.fence in accepted and finish.error is not None
        ],
    )
    return accepted, changed


def _row(row: tuple[Any, ...]) -> _Row:
    held = Held(Fence(row[0], row[1]), row[2], row[3], row[4], bool(row[5]), as_time(row[6]), as_time(row[7]))
    return _Row(held, *row[8:13])


class _Returning:
    """Keeps one waiting task per dedupe key: of the scope `waiting`, a running task has let go of its key."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._returned: dict[tuple[str, str], int] = {}

    def unless_taken(self, row: _Row, finish: Finish) -> Finish:
        """Return the finish, or the end of a task whose place is taken by one that waits already."""
        if finish.status in FINAL_STATUSES or row.dedupe_key is None or row.dedupe_scope != "waiting":
            return finish
        place = (row.task, row.dedupe_key)
        sibling = self._returned.get(place) or self._transaction.value(_SIBLING, task=row.task, key=row.dedupe_key)
        if sibling is not None:
            return duplicate(finish, int(sibling))
        self._returned[place] = row.held.fence.task_id
        return finish


def _values(transaction: Transaction, gate: KeyGate, row: _Row, finish: Finish) -> dict[str, Any]:
    now = transaction.now
    status, reason = finish.status, None
    if status is TaskStatus.PENDING and gate.limit(row.key) is not None:
        status, reason = TaskStatus.BLOCKED, BlockedReason.LIMIT
    fails_here = status is TaskStatus.SCHEDULED and not finish.attempt_back
    return {
        "id": finish.fence.task_id,
        "token": finish.fence.claim_token,
        "status": status,
        "reason": reason,
        # An interruption is no error of the task's own: its history tells of it.
        "error": None if finish.interruption and status not in FINAL_STATUSES else finish.error,
        "kind": finish.error_kind,
        "traceback": finish.traceback,
        "available": _available(finish, now),
        "back": int(finish.attempt_back),
        "interrupted": int(finish.interruption),
        "final": int(status in FINAL_STATUSES),
        "started": _start(now.timestamp(), finish),
        "avoid": row.worker if fails_here and avoidance.another_serves(transaction, row.worker, finish.fence) else None,
    }


def _start(now: float, finish: Finish) -> str:
    """Return when an execution began, as the database writes it.

    Args:
        now: the present in seconds.
        finish: tells how long ago it was.
    """
    return _text_of(int(now * 1e6 - max(0.0, finish.started_seconds_ago) * 1e6) // 1000)


@lru_cache(maxsize=256)
def _text_of(milliseconds: int) -> str:
    """Return the text of a time; many executions begin within one millisecond."""
    return stamp(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _available(finish: Finish, now: datetime) -> str | None:
    if finish.status is not TaskStatus.SCHEDULED:
        return None
    return stamp(now + timedelta(seconds=finish.retry_in or 0.0))
