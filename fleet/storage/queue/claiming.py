"""Claims: who may claim, which task is next, and the statement that makes it theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from fleet.domain.execution import Claimant, ClaimedTask
from fleet.domain.lanes import PREFERENCE_WAIT, LaneClaim
from fleet.domain.task import TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import leaving
from fleet.storage.parameters import by_ids, ids_json
from fleet.storage.queue import deadlines
from fleet.storage.queue.limits import KeyGate
from fleet.storage.rows import CLAIMED_COLUMNS, claimed_of
from fleet.storage.sql import Statement

# A status that is a bound parameter would keep SQLite from using the partial index: literals throughout.

PASSED_OVER = "(avoid_worker IS NULL OR avoid_worker <> :worker OR available_at <= :avoided_until)"
# A task that prefers other workers waits a moment for them. Only the first of a lane is asked: to look further would
# cost as much as the backlog is long.
WAITED = "coalesce({q}.available_at, {q}.created_at) <= :preferred_until"
WHAT = "attempt + 1 < max_attempts AND interruptions = 0 AND concurrency_key IS NULL"

_NEXT = Statement(
    f"""
    SELECT q.id, {WHAT}, q.concurrency_key, q.deadline_at IS NOT NULL AND q.deadline_at <= :now
    FROM json_each(:lanes) j JOIN work_queue q ON q.id IN (
        SELECT w.id FROM work_queue w
        WHERE w.status = 'pending' AND w.lane_id = json_extract(j.value, '$[0]') AND {PASSED_OVER}
        ORDER BY w.rank, w.id LIMIT :limit)
    WHERE json_extract(j.value, '$[2]') = 0 OR {WAITED.format(q="q")}
    ORDER BY json_extract(j.value, '$[1]'), q.rank, q.id LIMIT :limit
    """,
    f"""
    SELECT q.id, {WHAT}, q.concurrency_key, q.deadline_at IS NOT NULL AND q.deadline_at <= :now
    FROM json_array_elements(CAST(:lanes AS json)) AS j (value) CROSS JOIN LATERAL (
        SELECT id, rank, attempt, max_attempts, interruptions, concurrency_key, deadline_at, available_at, created_at
        FROM work_queue
        WHERE status = 'pending' AND lane_id = CAST(j.value->>0 AS bigint) AND {PASSED_OVER}
        ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED) q
    WHERE j.value->>2 = '0' OR {WAITED.format(q="q")}
    ORDER BY CAST(j.value->>1 AS int), q.rank, q.id LIMIT :limit
    """,
)

_FIRST = f"""SELECT w.available_at, w.created_at FROM work_queue w
        WHERE w.status = 'pending' AND w.lane_id = {{lane}} AND {PASSED_OVER} ORDER BY w.rank, w.id LIMIT 1"""
_ANY_TEXT = """
    SELECT 1 FROM {lanes} WHERE EXISTS (
        SELECT 1 FROM ({first}) AS h WHERE {flag} OR {waited}) LIMIT 1
    """
_ANY = Statement(
    _ANY_TEXT.format(
        lanes="json_each(:lanes) j",
        first=_FIRST.format(lane="json_extract(j.value, '$[0]')"),
        flag="json_extract(j.value, '$[2]') = 0",
        waited=WAITED.format(q="h"),
    ),
    _ANY_TEXT.format(
        lanes="json_array_elements(CAST(:lanes AS json)) AS j (value)",
        first=_FIRST.format(lane="CAST(j.value->>0 AS bigint)"),
        flag="j.value->>2 = '0'",
        waited=WAITED.format(q="h"),
    ),
)

# Who is in quarantine, or whose host is, gets nothing. The index of open ones is empty as a rule.
MAY_CLAIM = """w.status = 'active' AND NOT w.paused AND w.lease_expires_at >= :now
        AND NOT EXISTS (SELECT 1 FROM quarantine z WHERE z.released_at IS NULL AND z.until > :now
            AND z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END)"""
_CLAIMANT = "worker_registry w WHERE w.worker_id = :worker AND w.incarnation = :incarnation"
PAUSED = "s.paused AND (s.paused_until IS NULL OR s.paused_until > :now)"
_STANDING_TEXT = f"""SELECT w.status, {MAY_CLAIM},
    (SELECT {{collect}}(l.lane_id) FROM queue_setting s JOIN claim_lane l ON l.queue = s.queue WHERE {PAUSED}),
    (SELECT coalesce(max(lane_id), 0) FROM claim_lane)
    FROM {_CLAIMANT}"""
_STANDING = Statement(_STANDING_TEXT.format(collect="json_group_array"), _STANDING_TEXT.format(collect="json_agg"))
_STANDING_LOCKED = Statement(
    _STANDING_TEXT.format(collect="json_group_array"), f"{_STANDING_TEXT.format(collect='json_agg')} FOR SHARE OF w"
)

_MAX_LANE = Statement("SELECT coalesce(max(lane_id), 0) FROM claim_lane")

TO_RUNNING = f"""UPDATE work_queue SET status = 'running', worker = :worker, incarnation = :incarnation,
    claim_token = claim_token + 1, attempt = attempt + 1, claimed_at = :now, started_at = {{started}},
    progress = NULL, progress_text = NULL, finished_at = NULL
WHERE {leaving(TaskStatus.PENDING, to=(TaskStatus.RUNNING,))}"""
_CLAIM = f"{TO_RUNNING} AND id IN {{ids}} RETURNING {CLAIMED_COLUMNS}"
_CLAIM_BEGUN = by_ids(_CLAIM.replace("{started}", ":now"))
_CLAIM_HELD = by_ids(_CLAIM.replace("{started}", "NULL"))
_PAYLOAD = Statement("SELECT payload_json FROM work_payload WHERE task_id = :id")

# The whole of a strict claim, for the holder of SQLite's write lock: the claimant's standing, the pauses, the task. It
# finds nothing where anything is out of the ordinary, and then `take` looks closer.
_PLAIN = "work_queue.concurrency_key IS NULL AND (work_queue.deadline_at IS NULL OR work_queue.deadline_at > :now)"
_HEAD = f"""SELECT w.id FROM work_queue w WHERE w.status = 'pending' AND w.lane_id = {{lane}} AND {PASSED_OVER}
    ORDER BY w.rank, w.id LIMIT 1"""
_CLAIM_PLAIN_TEXT = f"""{TO_RUNNING.replace("{started}", ":now")} AND {_PLAIN}
    AND id = ({{first}})
    AND EXISTS (SELECT 1 FROM {_CLAIMANT} AND {MAY_CLAIM})
    AND NOT EXISTS (SELECT 1 FROM queue_setting s WHERE {PAUSED} AND s.queue = work_queue.queue)
    RETURNING {CLAIMED_COLUMNS}, (SELECT max(lane_id) FROM claim_lane)"""
_CLAIM_PLAIN = Statement(
    _CLAIM_PLAIN_TEXT.format(
        first=f"""SELECT q.id FROM json_each(:lanes) j
        JOIN work_queue q ON q.id = ({_HEAD.format(lane="json_extract(j.value, '$[0]')")})
        WHERE json_extract(j.value, '$[2]') = 0 OR {WAITED.format(q="q")}
        ORDER BY json_extract(j.value, '$[1]'), q.rank, q.id LIMIT 1"""
    )
)
_CLAIM_PLAIN_OF_ONE = Statement(_CLAIM_PLAIN_TEXT.format(first=_HEAD.format(lane=":lane")))

_MOST_LOOKS = 50
"""How often one claim looks again, after its first candidates turned out to be held by a limit, or too late."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the database says of a claimant.

    Attributes:
        status: its stored status; None when the registry does not know this incarnation.
        may_claim: whether it is active, not paused, not in quarantine, and within its lease.
        paused_lanes: lanes of queues that are paused now.
        max_lane_id: the newest lane's id; None when the registry does not know this incarnation.
    """

    status: str | None
    may_claim: bool
    paused_lanes: frozenset[int] = frozenset()
    max_lane_id: int | None = None

    def open(self, lanes: Sequence[LaneClaim]) -> Sequence[LaneClaim]:
        """Return the lanes that may be claimed from."""
        if not self.paused_lanes:
            return lanes
        return [lane for lane in lanes if lane[0] not in self.paused_lanes]


_PAUSED_LANES = Statement(
    f"SELECT l.lane_id FROM queue_setting s JOIN claim_lane l ON l.queue = s.queue WHERE {PAUSED}"
)


def open_lanes(transaction: Transaction, lanes: Sequence[LaneClaim]) -> Sequence[LaneClaim]:
    """Return those of the lanes whose queue is not paused now."""
    paused = frozenset(row[0] for row in transaction.rows(_PAUSED_LANES, now=transaction.now))
    return Standing(None, False, paused).open(lanes)


def max_lane_id(transaction: Transaction, standing: Standing) -> int:
    """Return the newest lane's id, as of the time when this standing was read."""
    return int(transaction.value(_MAX_LANE)) if standing.max_lane_id is None else standing.max_lane_id


def standing(transaction: Transaction, claimant: Claimant, *, locked: bool) -> Standing:
    """Return the claimant's standing.

    Locked, the row cannot be flagged before the claim commits (SQLite: the write lock; PostgreSQL: FOR SHARE).
    """
    rows = transaction.rows(
        _STANDING_LOCKED if locked else _STANDING,
        worker=claimant.worker_id,
        incarnation=claimant.incarnation,
        now=transaction.now,
    )
    if not rows:
        return Standing(None, False)
    status, may_claim, paused, newest = rows[0]
    return Standing(status, bool(may_claim), frozenset(_list(paused)), newest)


def _list(value: Any) -> list[int]:
    if value in (None, "[]"):
        return []
    return json.loads(value) if isinstance(value, str) else value  # type: ignore[no-any-return]


def anything_waited(transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim], seconds: float) -> bool:
    """Return whether the first task of a lane has been available for so long."""
    times = {**_times(transaction, claimant), "preferred_until": before(transaction.now, seconds)}
    return bool(transaction.rows(_ANY, lanes=lanes_json(tuple((lane, tier, 1) for lane, tier, _ in lanes)), **times))


def anything_to_claim(transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim]) -> bool:
    """Return whether a claim would find a task: an idle worker only reads."""
    return bool(lanes) and bool(transaction.rows(_ANY, lanes=lanes_json(tuple(lanes)), **_times(transaction, claimant)))


def take_plain(
    transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim]
) -> tuple[ClaimedTask, int] | None:
    """Claim one task for an active worker by one statement, on SQLite.

    Returns:
        The task and the newest lane's id; None when there is none, or one about which more must be asked: then nothing
        is changed.
    """
    if not lanes or not transaction.is_sqlite:
        return None
    lane, _, waits = lanes[0]
    named: dict[str, Any]
    if len(lanes) == 1 and not waits:
        statement, named = _CLAIM_PLAIN_OF_ONE, {"lane": lane}
    else:
        statement, named = _CLAIM_PLAIN, {"lanes": lanes_json(tuple(lanes))}
    rows = transaction.rows(
        statement, **named, **_times(transaction, claimant), incarnation=claimant.incarnation, now=transaction.now
    )
    return (claimed_of(rows[0], _payload(transaction, rows[0])), int(rows[0][-1])) if rows else None


def take(
    transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int
) -> tuple[ClaimedTask, ...]:
    """Claim up to `limit` tasks; the caller has checked the claimant's standing in this transaction."""
    if not lanes or limit < 1:
        return ()
    wanted = lanes_json(tuple(lanes))
    return take_found(
        transaction,
        claimant,
        lambda: transaction.rows(
            _NEXT, lanes=wanted, limit=limit, now=transaction.now, **_times(transaction, claimant)
        ),
    )


def take_found(
    transaction: Transaction, claimant: Claimant, find: Callable[[], Sequence[tuple[Any, ...]]]
) -> tuple[ClaimedTask, ...]:
    """Claim what `find` finds, which is asked again where that cannot be claimed; it gives rows as `_NEXT` does."""
    gate = KeyGate(transaction)
    for _ in range(_MOST_LOOKS):
        candidates = find()
        late = [row[0] for row in candidates if row[3]]
        if late:
            deadlines.fail(transaction, late)
            continue
        tasks = _first_free(transaction, gate, claimant, candidates)
        if tasks or not candidates:
            return tasks
    return ()


def _first_free(
    transaction: Transaction, gate: KeyGate, claimant: Claimant, candidates: Sequence[tuple[Any, ...]]
) -> tuple[ClaimedTask, ...]:
    """Claim the first candidates that no limit holds; those that one holds are blocked by the way."""
    refused: set[str] = set()
    for place, (task_id, _, key, _) in enumerate(candidates):
        if key is None:
            return _claim(transaction, claimant, _batch(candidates[place:]))
        if key not in refused and gate.start(key):
            tasks = _claim(transaction, claimant, [task_id])
            # Where a rate is limited, each start lets in the next.
            gate.admit([key])
            return tasks
        refused.add(key)
    return ()


def _claim(transaction: Transaction, claimant: Claimant, ids: Sequence[int]) -> tuple[ClaimedTask, ...]:
    rows = transaction.rows(
        _CLAIM_BEGUN if len(ids) == 1 or claimant.concurrent else _CLAIM_HELD,
        ids=ids_json(ids),
        worker=claimant.worker_id,
        incarnation=claimant.incarnation,
        now=transaction.now,
    )
    order = {task_id: place for place, task_id in enumerate(ids)}
    rows.sort(key=lambda row: order[row[0]])
    return tuple(claimed_of(row, _payload(transaction, row)) for row in rows)


def _batch(candidates: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return the leading tasks that may be claimed together.

    A task on its last attempt, or one that was interrupted before, comes alone: if it kills its worker, or the whole
    host, it must be known which one it was. One with a concurrency key comes alone too: its limit is asked for each.
    """
    ids: list[int] = []
    for task_id, comes_with_others, *_ in candidates:
        if not comes_with_others:
            return ids or [task_id]
        ids.append(task_id)
    return ids


@lru_cache(maxsize=64)
def lanes_json(lanes: tuple[LaneClaim, ...]) -> str:
    """Return lanes as a parameter: a worker names the same ones again and again."""
    return json.dumps(lanes)


def _times(transaction: Transaction, claimant: Claimant) -> dict[str, Any]:
    return {
        "worker": claimant.worker_id,
        "avoided_until": before(transaction.now, claimant.lease_seconds),
        "preferred_until": before(transaction.now, PREFERENCE_WAIT),
    }


@lru_cache(maxsize=16)
def before(now: datetime, seconds: float) -> datetime:
    """Return a time before now: a worker with small tasks asks many times in a millisecond."""
    return now - timedelta(seconds=seconds)


def _payload(transaction: Transaction, row: tuple[Any, ...]) -> str:
    if row[4] is not None:
        return str(row[4])
    return str(transaction.value(_PAYLOAD, id=row[0]) or "null")
