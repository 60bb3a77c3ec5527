"""What there is to do, in SQL: open tasks by lane, what they have taken lately, and who else would do them.

Read inside a pass's one read transaction, and only for policies that follow the work. Each count comes from the index
of its status; statistics come from `work_minute`, never from finished tasks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.demand import Offered, PastAdvice, PoolOffer, Work
from fleet.domain.group import Template
from fleet.storage.database import Transaction
from fleet.storage.rows import lane_of, loads, mapping, names_of, quantities
from fleet.storage.sql import Statement, as_time, time_of

PACE = 300.0
"""Seconds over which busy time and arrivals are counted; statistics are by whole minutes, so up to one more."""

MEASURED = (3_600.0, 86_400.0)
"""Seconds back within which executions are measured: those of the last hour, or else of the last day."""

MOST_SPLIT = 5_000
"""Newest tasks by which arrivals are divided between lanes."""

MOST_ADVICES = 2_000
MOST_OFFERS = 20

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
_BUSY = Statement(
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
_OFFERS = """SELECT pool, handlers, queues, capabilities, sum(slots) FROM (SELECT pool, slots,
        CAST(handlers_json AS TEXT) AS handlers, CAST(queues_json AS TEXT) AS queues,
        CAST(capabilities_json AS TEXT) AS capabilities
    FROM worker_registry WHERE {condition}) AS offers
    GROUP BY pool, handlers, queues, capabilities ORDER BY 5 DESC, 1"""
_LIVE_OFFERS = Statement(_OFFERS.format(condition="status = 'active' AND lease_expires_at >= :now"))
_FORMER_OFFERS = Statement(_OFFERS.format(condition="pool = :pool"))
_POOLS = Statement(
    """SELECT pool, CAST(offers_json AS TEXT), CAST(template_json AS TEXT) FROM scheduler ORDER BY pool"""
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


def work(transaction: Transaction, pace: Pace) -> tuple[Work, ...]:
    """Return open tasks by lane, and lanes that were worked on lately; lanes of paused queues have nothing pending."""
    now = transaction.now
    paused = {queue for (queue,) in transaction.rows(_PAUSED, now=now)}
    found = transaction.rows(_OPEN, since=pace.since)
    works = {row[0]: _work(row, now, paused) for row in found}
    if not works:
        return ()
    _add_busy(transaction, works, pace)
    _add_seconds(transaction, works)
    _add_arrivals(transaction, works, pace)
    return tuple(works.values())


def _work(row: tuple[Any, ...], now: datetime, paused: set[str]) -> Work:
    lane, pending, running, since = lane_of(row[:5]), row[5] or 0, row[6] or 0, as_time(row[7])
    return Work(
        queue=lane.queue,
        task=lane.task,
        requires=lane.requires,
        assigned_worker=lane.assigned_worker,
        pending=0 if lane.queue in paused else pending,
        running=running,
        longest_running=0.0 if since is None else max(0.0, (now - since).total_seconds()),
    )


def _add_busy(transaction: Transaction, works: dict[int, Work], pace: Pace) -> None:
    """Divide what a handler took between its lanes by their open tasks; statistics know no requirements."""
    busy = {(queue, task): seconds for queue, task, seconds, _ in transaction.rows(_BUSY, since=pace.since)}
    lanes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for lane_id, one in works.items():
        lanes[one.queue, one.task].append(lane_id)
    for kind, members in lanes.items():
        # One open task more for each: lanes with nothing open have had their part too.
        weights = [works[lane_id].pending + works[lane_id].running + 1 for lane_id in members]
        for lane_id, weight in zip(members, weights, strict=True):
            works[lane_id] = replace(works[lane_id], busy=busy.get(kind, 0.0) * weight / sum(weights))


def _add_seconds(transaction: Transaction, works: dict[int, Work]) -> None:
    missing = set(works)
    for back in MEASURED:
        since = (transaction.now - timedelta(seconds=back)).replace(second=0, microsecond=0)
        means = {
            (queue, task): seconds / int(number)
            for queue, task, seconds, number in transaction.rows(_BUSY, since=since)
            if number
        }
        for lane_id in list(missing):
            one = works[lane_id]
            if (one.queue, one.task) in means:
                works[lane_id] = replace(one, seconds=means[one.queue, one.task])
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


def pools(transaction: Transaction, pool: str) -> tuple[PoolOffer, ...]:
    """Return what each pool takes: of live workers, else what the last ones registered; `pool` is always among them."""
    slots: defaultdict[str, int] = defaultdict(int)
    live: defaultdict[str, list[Offered]] = defaultdict(list)
    for name, handlers, queues, capabilities, number in transaction.rows(_LIVE_OFFERS, now=transaction.now):
        slots[name] += number
        live[name].append(_offered(handlers, queues, capabilities))
    stored = {name: (offers, template) for name, offers, template in transaction.rows(_POOLS)}
    return tuple(
        PoolOffer(
            pool=name,
            slots=slots[name],
            offers=tuple(live[name][:MOST_OFFERS]) or _former(transaction, name, stored.get(name, (None, None))[0]),
            queues=_queues(stored.get(name, (None, None))[1]),
        )
        for name in sorted({pool, *stored, *live})
    )


def _offered(handlers: str | None, queues: str | None, capabilities: str | None) -> Offered:
    return Offered(frozenset(names_of(handlers)), names_of(queues), quantities(capabilities))


def _former(transaction: Transaction, pool: str, stored: str | None) -> tuple[Offered, ...]:
    """Return what is kept in the pool's row; of a pool that had no row then, what its former workers registered."""
    kept = mapping(stored)
    if isinstance(kept.get("handlers"), list):
        return (_offered(*(json.dumps(kept.get(key)) for key in ("handlers", "queues", "capabilities"))),)
    former = transaction.rows(_FORMER_OFFERS, pool=pool)
    return tuple(_offered(*row[1:4]) for row in former[:MOST_OFFERS])


def _queues(text: str | None) -> tuple[str, ...]:
    """Return the queues of a template's workers, without weights; none where it names none."""
    template = Template.from_json(loads(text))
    told: Any = template.options.get("queue", ()) if template else ()
    named: Sequence[Any] = [told] if isinstance(told, str) else told if isinstance(told, (list, tuple)) else ()
    return tuple(str(queue).partition("=")[0] for queue in named)


def advices(transaction: Transaction, pool: str, reach: float) -> tuple[PastAdvice, ...]:
    """Return the pool's ledger, `reach` seconds back, oldest first."""
    if reach <= 0:
        return ()
    since = transaction.now - timedelta(seconds=reach)
    rows = transaction.rows(_ADVICES, pool=pool, since=since, most=MOST_ADVICES)
    return tuple(PastAdvice(time_of(row[0]), time_of(row[1]), *row[2:]) for row in rows)
