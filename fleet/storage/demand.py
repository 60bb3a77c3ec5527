"""What there is to do, in SQL: open tasks by lane, what they have taken lately, and what was advised about it.

Read inside a pass's one read transaction, and only for policies that follow the work. Each count comes from the index
of its status; statistics come from `work_minute`, never from finished tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.demand import PastAdvice, Work
from fleet.domain.metrics import number
from fleet.storage.database import Transaction
from fleet.storage.rows import lane_of
from fleet.storage.sql import Statement, as_time, time_of

PACE = 300.0
"""Seconds over which busy time and arrivals are counted; statistics are by whole minutes, so up to one more."""

MEASURED = (3_600.0, 86_400.0)
"""Seconds back within which executions are measured: those of the last hour, or else of the last day."""

MOST_SPLIT = 5_000
"""Newest tasks by which arrivals are divided between lanes."""

MOST_ADVICES = 2_000

_OPEN = Statement(
    """SELECT l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker, p.n, r.n, r.since
    FROM claim_lane l
    LEFT JOIN (SELECT lane_id, count(*) AS n FROM work_queue WHERE status = 'pending' GROUP BY lane_id) p
        ON p.lane_id = l.lane_id
    LEFT JOIN (SELECT lane_id, count(*) AS n, min(coalesce(started_at, claimed_at)) AS since
        FROM work_queue WHERE status = 'running' GROUP BY lane_id) r ON r.lane_id = l.lane_id
    WHERE p.n > 0 OR r.n > 0
        OR (l.queue, l.task) IN (SELECT m.queue, m.task FROM work_minute m WHERE m.minute >= :since)
    ORDER BY l.lane_id"""
)
_PAUSED = Statement("SELECT queue FROM queue_setting WHERE paused AND (paused_until IS NULL OR paused_until > :now)")
_STATISTICS = Statement(
    """SELECT queue, task, sum(busy_seconds), sum(done + failed) FROM work_minute WHERE minute >= :since
    GROUP BY queue, task"""
)
_FIRST_FROM = Statement("SELECT id, created_at FROM work_queue WHERE id >= :id ORDER BY id LIMIT 1")
# Two looks by key: asked for both at once, SQLite reads the whole table.
_ENDS = Statement("SELECT (SELECT min(id) FROM work_queue), (SELECT max(id) FROM work_queue)")
_NEWEST = Statement(
    """SELECT lane_id, count(*) FROM (SELECT lane_id FROM work_queue WHERE id >= :first ORDER BY id DESC LIMIT :most)
        AS newest GROUP BY lane_id"""
)
_ADVICES = Statement(
    """SELECT created_at, last_seen_at, advised, desired, supply FROM (SELECT decision_id, created_at, last_seen_at,
            advised, desired, supply FROM scaling_decision WHERE pool = :pool ORDER BY decision_id DESC LIMIT :most)
        AS newest
    WHERE last_seen_at >= :since ORDER BY decision_id"""
)


@dataclass(frozen=True, slots=True)
class Pace:
    """What was done and came lately.

    Attributes:
        since: from when on.
        window: seconds from then until now.
    """

    since: datetime
    window: float


def pace_of(now: datetime) -> Pace:
    """Return the span over which busy time and arrivals are counted: it begins with a whole minute."""
    since = (now - timedelta(seconds=PACE)).replace(second=0, microsecond=0)
    return Pace(since, (now - since).total_seconds())


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What there is to do.

    Attributes:
        works: open tasks by lane, and lanes that were worked on lately; those of paused queues have nothing pending.
        waiting: pending tasks, those of paused queues included.
        running: running tasks.
    """

    works: tuple[Work, ...]
    waiting: int
    running: int


def open_work(transaction: Transaction, pace: Pace) -> OpenWork:
    """Return what there is to do."""
    now = transaction.now
    paused = {queue for (queue,) in transaction.rows(_PAUSED, now=now)}
    rows = transaction.rows(_OPEN, since=pace.since)
    works = {row[0]: _work(row, now, paused) for row in rows}
    if works:
        _add_busy(transaction, works, pace)
        _add_seconds(transaction, works)
        _add_arrivals(transaction, works, pace)
    waiting, running = (sum(row[column] or 0 for row in rows) for column in (5, 6))
    return OpenWork(tuple(works.values()), waiting, running)


def _work(row: tuple[Any, ...], now: datetime, paused: set[str]) -> Work:
    lane, pending, running, since = lane_of(row[:5]), row[5] or 0, row[6] or 0, as_time(row[7])
    return Work(
        queue=lane.queue,
        task=lane.task,
        requires=lane.requires,
        assigned_worker=lane.assigned_worker,
        pending=0 if lane.queue in paused else pending,
        running=running,
        arrivals=0,
        longest_running=0.0 if since is None else max(0.0, (now - since).total_seconds()),
    )


def _statistics(transaction: Transaction, since: datetime) -> Mapping[tuple[str, str], tuple[float, float]]:
    """Return (busy seconds, executions) by queue and handler; what a stranger's statement made senseless is none."""
    found = {}
    for queue, task, busy, executions in transaction.rows(_STATISTICS, since=since):
        seconds, many = number(busy), number(float(executions))
        if seconds is not None and many is not None:
            found[queue, task] = seconds, many
    return found


def _add_busy(transaction: Transaction, works: dict[int, Work], pace: Pace) -> None:
    """Divide what a handler took between its lanes by their open tasks; statistics know no requirements."""
    statistics = _statistics(transaction, pace.since)
    lanes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for lane_id, one in works.items():
        lanes[one.queue, one.task].append(lane_id)
    for kind, members in lanes.items():
        busy, _ = statistics.get(kind, (0.0, 0.0))
        # One open task more for each: lanes with nothing open have had their part too.
        weights = [works[lane_id].pending + works[lane_id].running + 1 for lane_id in members]
        for lane_id, weight in zip(members, weights, strict=True):
            works[lane_id] = replace(works[lane_id], busy=busy * weight / sum(weights))


def _add_seconds(transaction: Transaction, works: dict[int, Work]) -> None:
    missing = set(works)
    for back in MEASURED:
        since = (transaction.now - timedelta(seconds=back)).replace(second=0, microsecond=0)
        statistics = _statistics(transaction, since)
        for lane_id in list(missing):
            busy, executions = statistics.get((works[lane_id].queue, works[lane_id].task), (0.0, 0.0))
            if executions:
                works[lane_id] = replace(works[lane_id], seconds=busy / executions)
                missing.discard(lane_id)
        if not missing:
            return


def _add_arrivals(transaction: Transaction, works: dict[int, Work], pace: Pace) -> None:
    """Count tasks by their ids from the first one that is young enough on; lanes share by the newest of them."""
    first, last = first_since(transaction, pace.since)
    number = last - first + 1
    if number <= 0:
        return
    newest = dict(transaction.rows(_NEWEST, first=first, most=MOST_SPLIT))
    seen = sum(newest.values())
    # Ids that were given out and rolled back leave gaps: what was seen is exact where it is all.
    scale = 1.0 if seen < MOST_SPLIT else number / seen
    for lane_id, count in newest.items():
        if lane_id in works:
            works[lane_id] = replace(works[lane_id], arrivals=round(count * scale))


def first_since(transaction: Transaction, since: datetime) -> tuple[int, int]:
    """Return (first, last) id of tasks that were enqueued since then; first is above last where there are none.

    Ids rise with time, nearly: what commits out of turn is off by moments. By halving, each step one look by key.
    """
    low, high = transaction.rows(_ENDS)[0]
    if high is None:
        return 1, 0
    last = high
    high += 1
    while low < high:
        middle = (low + high) // 2
        found = transaction.rows(_FIRST_FROM, id=middle)
        if not found or time_of(found[0][1]) >= since:
            high = middle
        else:
            low = found[0][0] + 1
    return low, last


def advices(transaction: Transaction, pool: str, reach: float) -> tuple[PastAdvice, ...]:
    """Return the pool's ledger, `reach` seconds back, oldest first."""
    if reach <= 0:
        return ()
    since = transaction.now - timedelta(seconds=reach)
    rows = transaction.rows(_ADVICES, pool=pool, since=since, most=MOST_ADVICES)
    return tuple(PastAdvice(time_of(row[0]), time_of(row[1]), *row[2:]) for row in rows)
