"""Counting and listing tasks: reads only, each from the partial index of its status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from fleet.domain.lanes import PREFERENCE_WAIT, LaneClaim, requires_of
from fleet.domain.task import OPEN_STATUSES, QueueCounts, TaskFilter, TaskRecord, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.rows import TASK_COLUMNS, task_of
from fleet.storage.sql import Runner, Statement, time_of

_NO_LIMIT = 2**31

_PAUSED = """SELECT l.lane_id FROM queue_setting s JOIN claim_lane l ON l.queue = s.queue
    WHERE s.paused AND (s.paused_until IS NULL OR s.paused_until > :now)"""
_LANES_SQLITE = "(SELECT value FROM json_each(:lanes))"
_LANES_POSTGRESQL = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:lanes AS json)))"


def _counting(condition: str) -> Statement:
    text = f"""SELECT count(*) FROM (SELECT 1 FROM work_queue
        WHERE {condition} AND lane_id IN {{lanes}} LIMIT :limit) AS found"""
    return Statement(text.replace("{lanes}", _LANES_SQLITE), text.replace("{lanes}", _LANES_POSTGRESQL))


# A lane that prefers other workers counts once its first task has waited for them: see claiming.
_HEAD = """SELECT coalesce(h.available_at, h.created_at) <= :preferred_until FROM work_queue h
    WHERE h.status = 'pending' AND h.lane_id = {lane} ORDER BY h.rank, h.id LIMIT 1"""
_LANE = {"sqlite": "json_extract(j.value, '$[0]')", "postgresql": "CAST(j.value->>0 AS bigint)"}
# PostgreSQL, told to go through each lane in its order, does so whatever its statistics say.
_CLAIMABLE_OF = {
    "sqlite": f"""SELECT count(*) FROM (SELECT 1 FROM work_queue WHERE status = 'pending'
        AND lane_id IN (SELECT {_LANE["sqlite"]} FROM json_each(:lanes) j
            WHERE json_extract(j.value, '$[2]') = 0 OR ({_HEAD.format(lane=_LANE["sqlite"])}))
        AND lane_id NOT IN ({_PAUSED}) LIMIT :limit) AS found""",
    "postgresql": f"""SELECT count(*) FROM (SELECT 1 FROM json_array_elements(CAST(:lanes AS json)) AS j (value)
        CROSS JOIN LATERAL (SELECT 1 FROM work_queue WHERE status = 'pending' AND lane_id = {_LANE["postgresql"]}
            ORDER BY rank, id LIMIT :limit) AS one
        WHERE (j.value->>2 = '0' OR ({_HEAD.format(lane=_LANE["postgresql"])}))
            AND {_LANE["postgresql"]} NOT IN ({_PAUSED}) LIMIT :limit) AS found""",
}
_CLAIMABLE = Statement(**_CLAIMABLE_OF)
# Without a transaction, whose beginning tells the time, and whose end is waited for: a keeper's look is on the way from
# an enqueue to the handler.
_CLAIMABLE_NOW = Statement(
    _CLAIMABLE_OF["postgresql"]
    .replace(":preferred_until", "(statement_timestamp() - CAST(:wait AS interval))")
    .replace(":now", "statement_timestamp()")
)
_UNFINISHED = (
    _counting(f"status = 'pending' AND lane_id NOT IN ({_PAUSED})"),
    _counting("status = 'running'"),
    _counting(f"status = 'blocked' AND blocked_reason = 'limit' AND lane_id NOT IN ({_PAUSED})"),
    _counting(f"status = 'scheduled' AND available_at <= :horizon AND lane_id NOT IN ({_PAUSED})"),
)

# Each from the index of its status alone; only of what is pending the oldest is looked up.
_COUNTS = tuple(
    Statement(
        f"""SELECT '{status}', l.queue, l.task, l.capability_key, c.n, NULL FROM (
            SELECT lane_id, count(*) AS n FROM work_queue WHERE status = '{status}' GROUP BY lane_id) c
        JOIN claim_lane l ON l.lane_id = c.lane_id"""
    )
    for status in OPEN_STATUSES
    if status is not TaskStatus.PENDING
)
_PENDING_COUNTS = Statement(
    """SELECT 'pending', l.queue, l.task, l.capability_key, c.n, q.created_at FROM (
        SELECT lane_id, count(*) AS n, min(id) AS first FROM work_queue WHERE status = 'pending' GROUP BY lane_id) c
    JOIN claim_lane l ON l.lane_id = c.lane_id JOIN work_queue q ON q.id = c.first"""
)
_OPEN_TOTALS = Statement(
    "SELECT " + ", ".join(f"(SELECT count(*) FROM work_queue WHERE status = '{status}')" for status in OPEN_STATUSES)
)
_TOTALS = Statement("SELECT status, count(*) FROM work_queue GROUP BY status")


def claimable(transaction: Transaction, lanes: Sequence[LaneClaim], limit: int) -> int:
    """Return how many tasks of these lanes could be claimed, counting no further than `limit`."""
    until = transaction.now - timedelta(seconds=PREFERENCE_WAIT)
    return int(
        transaction.value(
            _CLAIMABLE, lanes=json.dumps(list(lanes)), limit=limit, now=transaction.now, preferred_until=until
        )
    )


def claimable_now(runner: Runner, lanes: Sequence[LaneClaim], limit: int) -> int:
    """Return the same on PostgreSQL, outside a transaction."""
    return int(
        runner.value(_CLAIMABLE_NOW, lanes=json.dumps(list(lanes)), limit=limit, wait=f"{PREFERENCE_WAIT} seconds")
    )


def unfinished(transaction: Transaction, lanes: Sequence[int], horizon: float) -> int:
    """Return how many tasks of these lanes are pending, running, held by a limit, or due within `horizon` seconds."""
    values = {
        "lanes": json.dumps(list(lanes)),
        "limit": _NO_LIMIT,
        "now": transaction.now,
        "horizon": transaction.now + timedelta(seconds=horizon),
    }
    return sum(int(transaction.value(statement, **values)) for statement in _UNFINISHED)


def tasks(transaction: Transaction, filter: TaskFilter) -> tuple[TaskRecord, ...]:
    """Return the tasks that match, newest first."""
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


def counts(transaction: Transaction) -> tuple[QueueCounts, ...]:
    """Return open tasks by queue, handler and requirement."""
    found: dict[tuple[str, str, str], QueueCounts] = {}
    for statement in (*_COUNTS, _PENDING_COUNTS):
        for status, queue, task, key, number, first_created in transaction.rows(statement):
            lane = (queue, task, key)
            one = found.get(lane) or QueueCounts(queue, task, requires_of(key))
            one = replace(one, **{status: number})
            if status == "pending":
                one = replace(one, oldest_pending_at=time_of(first_created))
            found[lane] = one
    return tuple(one for _, one in sorted(found.items(), key=lambda item: [str(part) for part in item[0]]))


def open_totals(transaction: Transaction) -> Mapping[str, int]:
    """Return how many tasks are in each open status."""
    numbers = transaction.rows(_OPEN_TOTALS)[0]
    return {str(status): int(number) for status, number in zip(OPEN_STATUSES, numbers, strict=True)}


def totals(transaction: Transaction) -> Mapping[str, int]:
    """Return how many tasks are in each status; reads every row."""
    return dict(transaction.rows(_TOTALS))
