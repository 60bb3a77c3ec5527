"""Claims that spread over a pool's workers: fair shares, and tasks that are left to whom they prefer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.lanes import ASSIGNED_TIER, Lane, LaneClaim, Offer
from fleet.domain.spreading import (
    Candidate,
    Choice,
    Idle,
    Load,
    Spreading,
    capacity_of,
    chosen,
    enough,
    in_order,
    share,
)
from fleet.storage.database import Transaction
from fleet.storage.parameters import by_id, ids_json
from fleet.storage.queue import claiming, counting
from fleet.storage.queue.claiming import MAY_CLAIM, PASSED_OVER, WHAT, before, lanes_json
from fleet.storage.rows import dumps, lane_of, names_of, quantities
from fleet.storage.sql import Statement, time_of

COUNTED_AT_MOST = 10_000
"""Claimable tasks that are counted for a share at most: beyond that shares are smaller than they could be."""

LOOKED_PAST = 20
"""Tasks of a lane that a claim looks past, at most, because they are left to others, or are being claimed by them."""

CONSIDERED_AT_MOST = 1_000
"""Candidates of one claim, the first by rank."""

_RUNNING = "(SELECT count(*) FROM work_queue q WHERE q.status = 'running' AND q.worker = w.worker_id)"
_IS_ALIKE = " AND ".join(
    f"CAST(w.{column} AS TEXT) = CAST(me.{column} AS TEXT)"
    for column in ("handlers_json", "queues_json", "capabilities_json")
)
_LOADS = Statement(
    f"""SELECT w.worker_id, w.slots, {_RUNNING} FROM worker_registry me JOIN worker_registry w ON w.pool = me.pool
    WHERE me.worker_id = :worker AND (w.worker_id = :worker OR ({MAY_CLAIM} AND {_IS_ALIKE}))"""
)
# Who offers the same matches no better: a pool of one kind has nobody to look at.
_IDLE = Statement(
    f"""SELECT handlers, queues, capabilities, sum(free) FROM (
        SELECT CAST(w.handlers_json AS TEXT) AS handlers, CAST(w.queues_json AS TEXT) AS queues,
            CAST(w.capabilities_json AS TEXT) AS capabilities, w.slots - {_RUNNING} AS free
        FROM worker_registry w
        WHERE w.pool = :pool AND CAST(w.capabilities_json AS TEXT) <> CAST(:own AS TEXT) AND {MAY_CLAIM}) AS others
    WHERE free > 0 GROUP BY handlers, queues, capabilities ORDER BY handlers, queues, capabilities"""
)

_PREFERRING_TEXT = """SELECT lane_id, queue, task, capability_key, assigned_worker FROM claim_lane
    WHERE capability_key LIKE '%"prefers":%' AND lane_id IN ({lanes})"""
_PREFERRING = Statement(
    _PREFERRING_TEXT.format(lanes="SELECT json_extract(j.value, '$[0]') FROM json_each(:lanes) j"),
    _PREFERRING_TEXT.format(
        lanes="SELECT CAST(j.value->>0 AS bigint) FROM json_array_elements(CAST(:lanes AS json)) AS j (value)"
    ),
)

# Without locks: who only looks must not keep others from what it leaves to them.
_CANDIDATES = Statement(
    f"""SELECT q.id, q.lane_id, json_extract(j.value, '$[1]'), q.rank, q.priority,
        coalesce(q.available_at, q.created_at)
    FROM json_each(:lanes) j JOIN work_queue q ON q.id IN (
        SELECT w.id FROM work_queue w
        WHERE w.status = 'pending' AND w.lane_id = json_extract(j.value, '$[0]') AND {PASSED_OVER}
        ORDER BY w.rank, w.id LIMIT :deep)
    ORDER BY 3, q.rank, q.id LIMIT :most""",
    f"""SELECT q.id, q.lane_id, CAST(j.value->>1 AS int), q.rank, q.priority, coalesce(q.available_at, q.created_at)
    FROM json_array_elements(CAST(:lanes AS json)) AS j (value) CROSS JOIN LATERAL (
        SELECT id, lane_id, rank, priority, available_at, created_at FROM work_queue
        WHERE status = 'pending' AND lane_id = CAST(j.value->>0 AS bigint) AND {PASSED_OVER}
        ORDER BY rank, id LIMIT :deep) q
    ORDER BY 3, q.rank, q.id LIMIT :most""",
)
_TO_CLAIM_TEXT = f"""SELECT q.id, {WHAT}, q.concurrency_key, q.deadline_at IS NOT NULL AND q.deadline_at <= :now
    FROM {{listed}} JOIN work_queue q ON q.id = {{id}} WHERE q.status = 'pending' ORDER BY {{place}} LIMIT :limit"""
# In this order the rows are locked, one after the other; what others hold is skipped.
_TO_CLAIM = by_id(
    _TO_CLAIM_TEXT.format(listed="json_each(:ids) j", id="j.value", place="j.key"),
    _TO_CLAIM_TEXT.format(
        listed="json_array_elements_text(CAST(:ids AS json)) WITH ORDINALITY AS j (value, place)",
        id="CAST(j.value AS bigint)",
        place="j.place",
    )
    + " FOR UPDATE OF q SKIP LOCKED",
)


def is_plain(claimant: Claimant, limit: int) -> bool:
    """Return whether a claim of so many tasks takes just what is next: nothing more is asked for it."""
    spreading = claimant.spreading
    if spreading is None:
        return True
    # Who executes one task at a time holds nothing when it claims: one task is always within its share.
    return not spreading.goes_by_capability and limit == 1 and not claimant.concurrent


def take(
    transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int
) -> tuple[tuple[ClaimedTask, ...], float | None]:
    """Claim up to `limit` tasks as the claimant's pool spreads them; as `claiming.take`.

    Returns:
        The tasks, and seconds until one that was left to somebody else is so no longer.
    """
    spreading = claimant.spreading
    if is_plain(claimant, limit) or spreading is None or not lanes or limit < 1:
        return claiming.take(transaction, claimant, lanes, limit), None
    if not spreading.goes_by_capability:
        return _take_share(transaction, claimant, lanes, limit), None
    preferring = _preferring(transaction, lanes)
    if not preferring:
        return claiming.take(transaction, claimant, lanes, limit), None
    left_for: float | None = None

    def find() -> list[tuple[Any, ...]]:
        nonlocal left_for
        choice = _choice(transaction, claimant, spreading, lanes, limit, preferring)
        left_for = choice.left_for
        ids = ids_json(one.task_id for one in choice.taken)
        return transaction.rows(_TO_CLAIM, ids=ids, limit=limit, now=transaction.now)

    return claiming.take_found(transaction, claimant, find), left_for


def anything_to_claim(
    transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim]
) -> tuple[bool, float | None]:
    """Return whether a claim would find a task, and seconds until one that it would leave is so no longer."""
    spreading = claimant.spreading
    if spreading is not None and spreading.goes_by_capability and (preferring := _preferring(transaction, lanes)):
        choice = _choice(transaction, claimant, spreading, lanes, 1, preferring)
        return bool(choice.taken), choice.left_for
    return claiming.anything_to_claim(transaction, claimant, lanes), None


def claimable(
    transaction: Transaction, spreading: Spreading, lanes: Sequence[LaneClaim], limit: int
) -> tuple[int, float | None]:
    """Return how many tasks workers of this kind would claim, counting no further than `limit`; and when to look again.

    Returns:
        The number, and seconds until a task that they leave to others is so no longer.
    """
    open_lanes = claiming.open_lanes(transaction, lanes)
    if not spreading.goes_by_capability or not (preferring := _preferring(transaction, open_lanes)):
        return counting.claimable(transaction, lanes, limit), None
    nobody = Claimant("", "", 0.0)
    choice = _choice(transaction, nobody, spreading, open_lanes, limit, preferring)
    return min(limit, len(choice.taken)), choice.left_for


def _take_share(
    transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int
) -> tuple[ClaimedTask, ...]:
    assigned = [lane for lane in lanes if lane[1] == ASSIGNED_TIER]
    most = _share(transaction, claimant, lanes, limit)
    if most > 0 or not assigned:
        return claiming.take(transaction, claimant, lanes, most)
    return claiming.take(transaction, claimant, assigned, limit)


def _share(transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int) -> int:
    """Return how many tasks a claim may bring, at most `limit`, so that all who take the same hold equally many."""
    own, others = Load(0, limit), []
    for worker, slots, held in transaction.rows(_LOADS, worker=claimant.worker_id, now=transaction.now):
        load = Load(held, max(held, capacity_of(slots)))
        if worker == claimant.worker_id:
            own = load
        else:
            others.append(load)
    counted = counting.claimable(transaction, lanes, min(COUNTED_AT_MOST, enough(limit, own, others)))
    fair = min(limit, share(counted, own, others))
    assert claimant.spreading is not None
    wait = claimant.spreading.allocation.prefer_wait
    if fair == 0 and counted and claiming.anything_waited(transaction, claimant, lanes, wait):
        # The others hold less, and do not come for it.
        return 1
    return fair


def _preferring(transaction: Transaction, lanes: Sequence[LaneClaim]) -> Mapping[int, Lane]:
    """Return those of the lanes that prefer something."""
    if not lanes:
        return {}
    found = (lane_of(row) for row in transaction.rows(_PREFERRING, lanes=lanes_json(tuple(lanes))))
    return {lane.lane_id: lane for lane in found if lane.prefers}


def _choice(
    transaction: Transaction,
    claimant: Claimant,
    spreading: Spreading,
    lanes: Sequence[LaneClaim],
    limit: int,
    preferring: Mapping[int, Lane],
) -> Choice:
    now = transaction.now
    rows = transaction.rows(
        _CANDIDATES,
        lanes=lanes_json(tuple(lanes)),
        deep=limit + LOOKED_PAST,
        most=max(limit, CONSIDERED_AT_MOST),
        worker=claimant.worker_id,
        avoided_until=before(now, claimant.lease_seconds),
    )
    candidates = [
        Candidate(task_id, lane_id, tier, rank, priority, (now - time_of(since)).total_seconds())
        for task_id, lane_id, tier, rank, priority, since in rows
    ]
    if not spreading.by_rank:
        candidates = in_order(candidates, preferring, spreading.capabilities)
    wait = spreading.allocation.prefer_wait
    # Lanes that name no better match are marked by the claimant itself.
    unmet = {lane for lane, _, waits in lanes if waits}
    asks = any(one.lane_id in unmet and one.waited < wait for one in candidates)
    idle = _idle(transaction, spreading) if asks else ()
    return chosen(candidates, preferring, spreading.capabilities, idle, wait)


def _idle(transaction: Transaction, spreading: Spreading) -> Sequence[Idle]:
    own = dumps(dict(spreading.capabilities))
    rows = transaction.rows(_IDLE, pool=spreading.pool, own=own, now=transaction.now)
    return tuple(Idle(_offer(handlers, queues, offered), int(free)) for handlers, queues, offered, free in rows)


@lru_cache(maxsize=2_000)
def _offer(handlers: str, queues: str, capabilities: str) -> Offer:
    """Return what workers take that registered this; strangers may have written it."""
    served = tuple((name, 0.0) for name in names_of(queues))
    return Offer("", frozenset(names_of(handlers)), served, quantities(capabilities))
