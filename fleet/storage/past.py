"""What came to the queue and how long it took, in SQL: from rows while they are kept, before that from statistics.

Of very many tasks those of a minute are added up where they are: what is read grows with time, not with tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.history import Came, History
from fleet.domain.lanes import Lane
from fleet.storage.database import Transaction
from fleet.storage.demand import first_since
from fleet.storage.rows import lane_of
from fleet.storage.sql import Statement, as_time, time_of

MOST_EXACT = 50_000
"""Tasks that are read one by one; of more, those of each minute are told together."""
MINUTE = 60.0
_MOST_OPEN = 10_000

_CAME = "CASE WHEN available_at > created_at THEN available_at ELSE created_at END"
_COUNTED = "id >= :first AND status NOT IN ('scheduled', 'blocked', 'cancelled')"
_EACH = Statement(
    f"""SELECT lane_id, {_CAME}, started_at, finished_at, status FROM work_queue WHERE {_COUNTED} ORDER BY id"""
)
_BY_MINUTE = Statement(
    f"""SELECT lane_id, substr(came, 1, 17) || '00.000Z', count(*),
        avg((julianday(ended) - julianday(began)) * 86400),
        sum(max(0, julianday(coalesce(began, waits)) - julianday(came)) * 86400), count(coalesce(began, waits))
    FROM (SELECT lane_id, {_CAME} AS came, started_at AS began, finished_at AS ended,
        CASE WHEN status = 'pending' THEN :now END AS waits FROM work_queue WHERE {_COUNTED}) AS each_one
    GROUP BY 1, 2 ORDER BY 2""",
    f"""SELECT lane_id, date_trunc('minute', came), count(*),
        avg(extract(epoch FROM ended - began)),
        sum(greatest(0, extract(epoch FROM coalesce(began, waits) - came))), count(coalesce(began, waits))
    FROM (SELECT lane_id, {_CAME} AS came, started_at AS began, finished_at AS ended,
        CASE WHEN status = 'pending' THEN CAST(:now AS timestamptz) END AS waits
        FROM work_queue WHERE {_COUNTED}) AS each_one
    GROUP BY 1, 2 ORDER BY 2""",
)
_FIRST_ENDED = Statement(
    """SELECT created_at FROM (SELECT id, created_at, status FROM work_queue WHERE id >= :first
        ORDER BY id LIMIT :most) AS oldest
    WHERE status IN ('done', 'failed', 'cancelled') ORDER BY id LIMIT 1"""
)
_STATISTICS = Statement(
    """SELECT minute, queue, task, done + failed, busy_seconds FROM work_minute
    WHERE minute >= :since AND minute < :until AND done + failed > 0 ORDER BY minute"""
)
_LANES = Statement("SELECT lane_id, queue, task, capability_key, assigned_worker FROM claim_lane")


def history(transaction: Transaction, since: datetime) -> History:
    """Return what came to the queue since then."""
    now = transaction.now
    lanes = {row[0]: lane_of(row) for row in transaction.rows(_LANES)}
    first, last = first_since(transaction, since)
    is_exact = last - first < MOST_EXACT
    came = _each(transaction, first, lanes) if is_exact else _by_minute(transaction, first, lanes)
    rows_since = as_time(transaction.value(_FIRST_ENDED, first=first, most=_MOST_OPEN)) or now
    before = _statistics(transaction, since, rows_since, lanes)
    found = sorted((each for each in (*before, *came) if each.at <= now), key=lambda each: each.at)
    return History(since, now, tuple(found), is_exact and not before, rows_since if before else None)


def _each(transaction: Transaction, first: int, lanes: Mapping[int, Lane]) -> list[Came]:
    return [_one(lanes[row[0]], row, transaction.now) for row in transaction.rows(_EACH, first=first)]


def _one(lane: Lane, row: tuple[Any, ...], now: datetime) -> Came:
    at, began, ended = time_of(row[1]), as_time(row[2]), as_time(row[3])
    until = now if row[4] == "pending" else began
    return Came(
        lane,
        at,
        seconds=None if began is None or ended is None else max(0.0, (ended - began).total_seconds()),
        waited=0.0 if until is None else max(0.0, (until - at).total_seconds()),
        begun=int(until is not None),
    )


def _by_minute(transaction: Transaction, first: int, lanes: Mapping[int, Lane]) -> list[Came]:
    return [
        Came(
            lanes[lane_id],
            time_of(minute),
            count,
            None if seconds is None else max(0.0, float(seconds)),
            float(waited or 0.0),
            begun,
            MINUTE,
        )
        for lane_id, minute, count, seconds, waited, begun in transaction.rows(
            _BY_MINUTE, first=first, now=transaction.now
        )
    ]


def _statistics(transaction: Transaction, since: datetime, until: datetime, lanes: Mapping[int, Lane]) -> list[Came]:
    """Return what was finished by minute before rows begin: when it came, and what it waited, nobody knows any more."""
    whole = until.replace(second=0, microsecond=0)
    by_kind = {(lane.queue, lane.task): lane for lane in reversed(tuple(lanes.values())) if not lane.assigned_worker}
    return [
        Came(
            by_kind.get((queue, task)) or Lane(0, queue, task, {}),
            time_of(minute),
            count,
            float(busy) / count,
            span=MINUTE,
        )
        for minute, queue, task, count, busy in transaction.rows(
            _STATISTICS, since=since - timedelta(seconds=MINUTE), until=whole
        )
    ]
