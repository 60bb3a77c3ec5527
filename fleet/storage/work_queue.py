"""The queue of tasks in SQL: verbs, each one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from fleet.domain.execution import Claimant, ClaimReply, Fence, Finish
from fleet.domain.lanes import Lane, requires_of
from fleet.domain.task import FINAL_STATUSES, Enqueued, HandlerDefaults, NewTask, QueueCounts, TaskFilter, TaskRecord
from fleet.storage import claiming, handlers
from fleet.storage.database import Database, Transaction
from fleet.storage.enqueuing import add_tasks
from fleet.storage.finishing import write_finishes
from fleet.storage.interfaces import NEWEST_TASKS
from fleet.storage.release import release
from fleet.storage.rows import TASK_COLUMNS, lane_of, task_of
from fleet.storage.sql import Statement, time_of

_LANES = Statement(
    """SELECT lane_id, queue, task, capability_key, assigned_worker FROM claim_lane
    WHERE lane_id > :after ORDER BY lane_id"""
)
_START = Statement(
    """UPDATE work_queue SET started_at = coalesce(started_at, :now)
    WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation"""
)
_PROGRESS = Statement(
    """UPDATE work_queue SET progress = :fraction, progress_text = :text
    WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation"""
)
_DUE = Statement("SELECT 1 FROM work_queue WHERE status = 'scheduled' AND available_at <= :now LIMIT 1")
_PROMOTE = Statement(
    """UPDATE work_queue SET status = 'pending' WHERE status = 'scheduled' AND id IN (
        SELECT id FROM work_queue WHERE status = 'scheduled' AND available_at <= :now
        ORDER BY available_at LIMIT :limit)""",
    """UPDATE work_queue SET status = 'pending' WHERE status = 'scheduled' AND id = ANY (ARRAY(
        SELECT id FROM work_queue WHERE status = 'scheduled' AND available_at <= :now
        ORDER BY available_at LIMIT :limit FOR UPDATE SKIP LOCKED))""",
)
_EARLIEST = Statement("SELECT min(available_at) FROM work_queue WHERE status = 'scheduled'")

_IN_LANES_SQLITE = "lane_id IN (SELECT value FROM json_each(:lanes))"
_IN_LANES_POSTGRESQL = "lane_id IN (SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:lanes AS json)))"


def _counting(condition: str) -> Statement:
    text = f"SELECT count(*) FROM (SELECT 1 FROM work_queue WHERE {condition} AND {{lanes}} LIMIT :limit) AS found"
    return Statement(text.format(lanes=_IN_LANES_SQLITE), text.format(lanes=_IN_LANES_POSTGRESQL))


_CLAIMABLE = _counting("status = 'pending'")
_EXECUTING = _counting("status = 'running'")
_DUE_SOON = _counting("status = 'scheduled' AND available_at <= :horizon")
_NO_LIMIT = 2**31

_GET = Statement(
    f"""SELECT {TASK_COLUMNS}, q.result_json,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id"""
)
_COUNTS = tuple(
    Statement(
        f"""SELECT '{status}', l.queue, l.task, l.capability_key, c.n, q.created_at FROM (
            SELECT lane_id, count(*) AS n, min(id) AS first FROM work_queue WHERE status = '{status}'
            GROUP BY lane_id) c
        JOIN claim_lane l ON l.lane_id = c.lane_id JOIN work_queue q ON q.id = c.first"""
    )
    for status in ("blocked", "scheduled", "pending", "running")
)
_TOTALS = Statement("SELECT status, count(*) FROM work_queue GROUP BY status")

_CURSOR = Statement("SELECT prune_cursor FROM maintenance WHERE id = 1")
_MOVE_CURSOR = Statement("UPDATE maintenance SET prune_cursor = :cursor WHERE id = 1")
_SCAN = Statement(
    "SELECT id, status, finished_at FROM work_queue WHERE id > :cursor ORDER BY id LIMIT :limit",
)
_IDS_SQLITE = "(SELECT value FROM json_each(:ids))"
_IDS_POSTGRESQL = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:ids AS json)))"
_DELETE_PAYLOADS = Statement(
    f"DELETE FROM work_payload WHERE task_id IN {_IDS_SQLITE}",
    f"DELETE FROM work_payload WHERE task_id IN {_IDS_POSTGRESQL}",
)
_FINISHED = "status IN ('done', 'failed', 'cancelled')"
_DELETE_TASKS = Statement(
    f"DELETE FROM work_queue WHERE id IN {_IDS_SQLITE} AND {_FINISHED}",
    f"DELETE FROM work_queue WHERE id IN {_IDS_POSTGRESQL} AND {_FINISHED}",
)
_FREE_PAGES = Statement("PRAGMA freelist_count", "SELECT 0")
_RETURN_PAGE = Statement("PRAGMA incremental_vacuum(1)", "SELECT 1")
_PAGES_AT_A_TIME = 100


class SqlWorkQueue:
    """`WorkQueue` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enqueue(self, tasks: Sequence[NewTask], *, transaction: Any = None) -> Enqueued:
        """Add tasks; see `WorkQueue.enqueue`. `transaction` may be a SQLAlchemy connection of the caller's."""
        if not tasks:
            return Enqueued(())
        if transaction is None:
            return self._database.write(lambda own: add_tasks(own, tasks), durable=True)
        open_one = self._database.join(transaction) if isinstance(transaction, Connection) else transaction
        # A caller's transaction may have been open for long.
        open_one.renew_now()
        return add_tasks(open_one, tasks)

    def lanes(self, after: int = 0) -> tuple[Lane, ...]:
        """Return lanes with a larger id than `after`."""
        rows = self._database.read(lambda transaction: transaction.rows(_LANES, after=after))
        return tuple(lane_of(row) for row in rows)

    def claim(self, claimant: Claimant, lanes: Sequence[tuple[int, int]], limit: int = 1) -> ClaimReply:
        """Claim up to `limit` tasks, after a read that says whether there are any."""
        reply, worth_it = self._database.read(lambda transaction: _probe(transaction, claimant, lanes))
        if not worth_it or limit < 1:
            return reply
        return self.finish_and_claim(claimant, (), lanes, limit)

    def finish_and_claim(
        self,
        claimant: Claimant,
        finishes: Sequence[Finish],
        lanes: Sequence[tuple[int, int]],
        limit: int = 1,
    ) -> ClaimReply:
        """Write how tasks ended and claim the next, in one commit."""
        return self._database.write(
            lambda transaction: _finish_and_claim(transaction, claimant, finishes, lanes, limit)
        )

    def start(self, claimant: Claimant, fence: Fence) -> bool:
        """Stamp `started_at` of a batched task."""
        return self._fenced(_START, claimant.incarnation, fence)

    def release(self, incarnation: str, fences: Sequence[Fence], *, interrupted: bool, reason: str) -> tuple[int, ...]:
        """Give tasks back without spending the attempt."""
        return self._database.write(
            lambda transaction: release(transaction, incarnation, fences, interrupted=interrupted, reason=reason)
        )

    def progress(self, incarnation: str, fence: Fence, fraction: float | None, text: str | None) -> bool:
        """Store a running task's progress."""
        return self._fenced(_PROGRESS, incarnation, fence, fraction=fraction, text=text)

    def _fenced(self, statement: Statement, incarnation: str, fence: Fence, **values: Any) -> bool:
        def write(transaction: Transaction) -> bool:
            return bool(
                transaction.touched(
                    statement,
                    id=fence.task_id,
                    token=fence.claim_token,
                    incarnation=incarnation,
                    now=transaction.now,
                    **values,
                )
            )

        return self._database.write(write)

    def promote(self, limit: int = 500) -> int:
        """Make due `scheduled` tasks `pending`; takes the write lock only when some are due."""
        if not self._database.read(lambda transaction: transaction.rows(_DUE, now=transaction.now)):
            return 0
        return self._database.write(lambda transaction: transaction.touched(_PROMOTE, now=transaction.now, limit=limit))

    def next_due_in(self) -> float | None:
        """Return seconds until the earliest scheduled task is due."""
        return self._database.read(_next_due_in)

    def claimable(self, lanes: Sequence[int], limit: int) -> int:
        """Return how many tasks of these lanes are pending, counting no further than `limit`."""
        return self._database.read(
            lambda transaction: int(transaction.value(_CLAIMABLE, lanes=json.dumps(list(lanes)), limit=limit))
        )

    def unfinished(self, lanes: Sequence[int], horizon: float) -> int:
        """Return how many tasks of these lanes are pending, running, or scheduled and due within `horizon`."""

        def count(transaction: Transaction) -> int:
            until = transaction.now + timedelta(seconds=horizon)
            found = (
                transaction.value(statement, lanes=json.dumps(list(lanes)), limit=_NO_LIMIT, horizon=until)
                for statement in (_CLAIMABLE, _EXECUTING, _DUE_SOON)
            )
            return sum(int(number) for number in found)

        return self._database.read(count)

    def get(self, task_id: int) -> TaskRecord | None:
        """Return one task, payload included."""
        row = self._database.read(lambda transaction: transaction.record(_GET, id=task_id))
        return task_of(row) if row else None

    def list(self, filter: TaskFilter = NEWEST_TASKS) -> tuple[TaskRecord, ...]:
        """Return the tasks that match, newest first."""
        return self._database.read(lambda transaction: _list(transaction, filter))

    def counts(self) -> tuple[QueueCounts, ...]:
        """Return open tasks by queue, handler and requirement."""
        return self._database.read(_counts)

    def totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each status."""
        return dict(self._database.read(lambda transaction: transaction.rows(_TOTALS)))

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete finished tasks that ended long ago, a bounded stretch of ids at a time."""
        old, before, after = self._database.read(lambda transaction: _scan(transaction, older_than, limit))
        if not old and before == after:
            return 0
        return self._database.write(lambda transaction: _delete(transaction, old, after))

    def declare_handlers(self, declared: Iterable[HandlerDefaults]) -> None:
        """Store handler defaults that differ from what is stored."""
        wanted = {handler.name: handler for handler in declared}
        stored = self._database.read(lambda transaction: handlers.defaults_of(transaction, wanted))
        changed = [
            handler
            for name, handler in wanted.items()
            if name not in stored or handlers.normal(stored[name]) != handlers.normal(handler)
        ]
        if changed:
            self._database.write(lambda transaction: handlers.store_defaults(transaction, changed))

    def handlers(self) -> tuple[HandlerDefaults, ...]:
        """Return the stored handler defaults, by name."""
        return self._database.read(handlers.all_defaults)


def _probe(transaction: Transaction, claimant: Claimant, lanes: Sequence[tuple[int, int]]) -> tuple[ClaimReply, bool]:
    status, may_claim = claiming.standing(transaction, claimant, locked=False)
    reply = ClaimReply(max_lane_id=claiming.max_lane_id(transaction), status=status)
    return reply, may_claim and claiming.anything_to_claim(transaction, claimant, lanes)


def _finish_and_claim(
    transaction: Transaction,
    claimant: Claimant,
    finishes: Sequence[Finish],
    lanes: Sequence[tuple[int, int]],
    limit: int,
) -> ClaimReply:
    # Registry before tasks: the lock order everywhere.
    status, may_claim = claiming.standing(transaction, claimant, locked=True)
    accepted = write_finishes(transaction, claimant.worker_id, claimant.incarnation, finishes)
    tasks = claiming.take(transaction, claimant, lanes, limit) if may_claim else ()
    return ClaimReply(tasks, accepted, claiming.max_lane_id(transaction), status)


def _next_due_in(transaction: Transaction) -> float | None:
    earliest = transaction.value(_EARLIEST)
    if earliest is None:
        return None
    return max(0.0, (time_of(earliest) - transaction.now).total_seconds())


def _list(transaction: Transaction, filter: TaskFilter) -> tuple[TaskRecord, ...]:
    conditions = [
        *([f"q.status IN ({', '.join(repr(str(status)) for status in filter.status)})"] if filter.status else []),
        *(["q.queue = :queue"] if filter.queue is not None else []),
        *(["q.task = :task"] if filter.task is not None else []),
        *(["q.id < :before"] if filter.before_id is not None else []),
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = Statement(
        f"""SELECT {TASK_COLUMNS} FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id
        {where} ORDER BY q.id DESC LIMIT :limit"""
    )
    rows = transaction.records(
        statement, queue=filter.queue, task=filter.task, before=filter.before_id, limit=filter.limit
    )
    return tuple(task_of(row) for row in rows)


def _counts(transaction: Transaction) -> tuple[QueueCounts, ...]:
    found: dict[tuple[str, str, str], QueueCounts] = {}
    for statement in _COUNTS:
        for status, queue, task, key, number, first_created in transaction.rows(statement):
            lane = (queue, task, key)
            counts = found.get(lane) or QueueCounts(queue, task, requires_of(key))
            counts = replace(counts, **{status: number})
            if status == "pending":
                counts = replace(counts, oldest_pending_at=time_of(first_created))
            found[lane] = counts
    return tuple(counts for _, counts in sorted(found.items(), key=lambda item: [str(part) for part in item[0]]))


def _scan(transaction: Transaction, older_than: float, limit: int) -> tuple[list[int], int, int]:
    """Return the next finished tasks that are old enough, the cursor, and where it goes next."""
    cutoff = transaction.now - timedelta(seconds=older_than)
    cursor = int(transaction.value(_CURSOR))
    rows = transaction.rows(_SCAN, cursor=cursor, limit=limit)
    old = [
        task_id
        for task_id, status, finished_at in rows
        if status in FINAL_STATUSES and finished_at is not None and time_of(finished_at) < cutoff
    ]
    # At the end of the table the next pass begins at its start again.
    return old, cursor, rows[-1][0] if len(rows) == limit else 0


def _delete(transaction: Transaction, old: Sequence[int], cursor: int) -> int:
    transaction.rows(_MOVE_CURSOR, cursor=cursor)
    if not old:
        return 0
    ids = json.dumps(list(old))
    transaction.rows(_DELETE_PAYLOADS, ids=ids)
    deleted = transaction.touched(_DELETE_TASKS, ids=ids)
    # Python's driver steps this pragma once, which returns one page, whatever number it is given.
    for _ in range(min(int(transaction.value(_FREE_PAGES)), _PAGES_AT_A_TIME)):
        transaction.rows(_RETURN_PAGE)
    return deleted
