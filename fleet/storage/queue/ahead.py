"""Ends and claims of a worker whose tasks are small, sent to a server while it executes what it has claimed before.

One statement for all that is ordinary: ends of tasks from which nothing follows, and the next tasks of a plain claim.
It touches nothing else; what it leaves, the worker writes and claims as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from fleet.domain.execution import Claimant, ClaimReply, Fence, Finish
from fleet.domain.lanes import PREFERENCE_WAIT, LaneClaim
from fleet.domain.task import TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.errors import FleetError
from fleet.storage import minutes
from fleet.storage.database import Database
from fleet.storage.flight import Flight
from fleet.storage.parameters import beside_id
from fleet.storage.queue import spreading
from fleet.storage.queue.claiming import MAY_CLAIM, PASSED_OVER, PAUSED, TO_RUNNING, WAITED, WHAT, lanes_json
from fleet.storage.queue.finishing import MINE, STILL_RUNNING, TO_DONE
from fleet.storage.rows import CLAIMED_COLUMNS, claimed_of
from fleet.storage.server.pipeline import Answer, Step
from fleet.storage.sql import Statement

MOST_BYTES = 65_536
"""Of the tasks that one reply brings: it must fit into the buffers of a connection from which nobody reads yet, or the
server would keep its transaction open until somebody does. The ends that it confirms are 13,000 at most."""

ROW_BYTES = 100
"""Of a task's row in a reply, besides its texts: the sizes of 14 values, and the numbers."""

_COUNTED = "fleet.counted"
"""A setting of the transaction alone."""

_NOW = "date_trunc('milliseconds', statement_timestamp())"
_QUALIFIED = ", ".join(f"claimed.{name.strip()}" for name in CLAIMED_COLUMNS.split(","))
_SIZE = f"""{ROW_BYTES} + octet_length(CAST(payload_json AS text)) + octet_length(queue) + octet_length(task)
                + coalesce(octet_length(CAST(retry_json AS text)), 0)"""
_STARTED = "date_trunc('milliseconds', statement_timestamp() - f.ago * interval '1 us')"
_TO_HELD, _, _FROM = TO_RUNNING.format(started="NULL").partition("WHERE ")
# The registry's row is locked before those of tasks, as everywhere: so the ends ask for it too, whatever it says.
_END_TEXT = f"""
WITH me AS MATERIALIZED (
    SELECT 1 FROM worker_registry w
    WHERE w.worker_id = :worker AND w.incarnation = :incarnation FOR SHARE OF w
), ended AS (
    {TO_DONE.format(result="CAST(f.result AS json)", started=_STARTED)}
    FROM unnest(CAST(:ids AS bigint[]), CAST(:tokens AS bigint[]), CAST(:results AS text[]), CAST(:agos AS bigint[]),
        CAST(:took AS float8[])) AS f (id, token, result, ago, seconds)
    WHERE (SELECT count(*) FROM me) >= 0 AND {MINE} AND {beside_id(STILL_RUNNING)}
        AND concurrency_key IS NULL AND batch_id IS NULL
        AND NOT EXISTS (SELECT 1 FROM work_dependency d WHERE d.parent = work_queue.id AND d.satisfied = false)
    RETURNING work_queue.id, claim_token, queue, task, f.seconds
), counted AS (
    SELECT queue, task, count(*) AS done, sum(seconds) AS busy, max(seconds) AS longest FROM ended GROUP BY queue, task
)
SELECT id, claim_token FROM ended UNION ALL SELECT 0, length(
    set_config('{_COUNTED}', CAST(coalesce((SELECT json_agg(c) FROM counted c), '[]') AS text), true))
"""
_CLAIM_TEXT = f"""
WITH me AS MATERIALIZED (
    SELECT {MAY_CLAIM} AS may FROM worker_registry w
    WHERE w.worker_id = :worker AND w.incarnation = :incarnation FOR SHARE OF w
), lanes AS MATERIALIZED (
    SELECT CAST(j.value->>0 AS bigint) AS lane_id, CAST(j.value->>1 AS int) AS tier, j.value->>2 AS waits
    FROM json_array_elements(CAST(:lanes AS json)) AS j (value)
    WHERE (SELECT may FROM me) AND NOT EXISTS (SELECT 1 FROM queue_setting s JOIN claim_lane l ON l.queue = s.queue
        WHERE l.lane_id = CAST(j.value->>0 AS bigint) AND {PAUSED})
), found AS MATERIALIZED (
    SELECT q.id, row_number() OVER run AS place, bool_and(q.plain) OVER run AND sum(q.size) OVER run <= :most AS taken
    FROM lanes CROSS JOIN LATERAL (
        SELECT id, rank, available_at, created_at, {_SIZE} AS size,
            {WHAT} AND payload_json IS NOT NULL AND (deadline_at IS NULL OR deadline_at > :now) AS plain
        FROM work_queue WHERE status = 'pending' AND lane_id = lanes.lane_id AND {PASSED_OVER}
        ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED) q
    WHERE waits = '0' OR {WAITED.format(q="q")}
    WINDOW run AS (ORDER BY tier, q.rank, q.id ROWS UNBOUNDED PRECEDING)
    ORDER BY tier, q.rank, q.id LIMIT :limit
), claimed AS (
    {_TO_HELD}
    WHERE id = ANY (ARRAY(SELECT id FROM found WHERE taken)) AND (SELECT count(*) FROM found WHERE taken) > 1
        AND {beside_id(_FROM)}
    RETURNING {CLAIMED_COLUMNS}
)
SELECT place, {_QUALIFIED}, (SELECT max(lane_id) FROM claim_lane) FROM claimed JOIN found ON found.id = claimed.id
"""
_WRITTEN_OUT = {
    ":now": _NOW,
    ":avoided_until": "(statement_timestamp() - CAST(:lease AS float8) * interval '1 second')",
    ":preferred_until": f"(statement_timestamp() - interval '{PREFERENCE_WAIT} seconds')",
    ":worker": "CAST(:worker AS text)",
    ":incarnation": "CAST(:incarnation AS text)",
    ":limit": "CAST(:limit AS bigint)",
    ":most": str(MOST_BYTES),
}


def _filled(text: str) -> str:
    for name, value in _WRITTEN_OUT.items():
        text = text.replace(name, value)
    return text


_CLAIM = Statement(_filled(_CLAIM_TEXT))
_END = Statement(_filled(_END_TEXT))

# Whoever has added a child to one of these meanwhile was waited for, and the statement did not see it: all is undone
# then, by an error, and done as ever.
_CHECK = Statement(
    """SELECT 1 / CASE WHEN EXISTS (
        SELECT 1 FROM unnest(CAST(:ids AS bigint[])) AS f (id)
        CROSS JOIN LATERAL (
            SELECT 1 FROM work_dependency d WHERE d.parent = f.id AND d.satisfied = false LIMIT 1) AS awaited
        CROSS JOIN LATERAL (
            SELECT 1 FROM work_queue q WHERE q.id = f.id AND (q.status || '') = 'done' OFFSET 0) AS ended)
    THEN 0 ELSE 1 END"""
)


# What the ends add to the statistics is handed on to the last statement, since others wait for those few rows.
_COUNT = Statement(
    f"""INSERT INTO work_minute (minute, queue, task, done, failed, busy_seconds, max_seconds)
    SELECT date_trunc('minute', statement_timestamp()), queue, task, done, 0, busy, longest
    FROM json_to_recordset(CAST(current_setting('{_COUNTED}') AS json))
        AS c (queue text, task text, done bigint, busy float8, longest float8)
    ORDER BY queue, task {minutes.ON_CONFLICT}"""
)


class Ahead:
    """Ends and a claim that are sent.

    Args:
        database: where to.
        steps: what is sent.
    """

    def __init__(self, database: Database, steps: Sequence[Step]) -> None:
        self._database = database
        self._steps = steps
        self._flight: Flight | None = None

    def send(self) -> bool:
        """Send it, unless nothing can be sent ahead here; see `interfaces.Ahead`."""
        self._flight = self._database.send(self._steps)
        return self._flight is not None

    def count(self) -> int:
        """Wait for the reply; return how many tasks it brings."""
        try:
            return len(self._claimed(self._answers()))
        except Exception:
            # `reply` tells of it.
            return 0

    def reply(self) -> ClaimReply | None:
        """Return what was claimed and which ends were written; see `interfaces.Ahead`."""
        try:
            answers = self._answers()
        except Exception as error:
            if isinstance(error, FleetError) or getattr(error, "sqlstate", None) is None:
                raise
            return None
        accepted = frozenset(map(Fence._make, answers[0].rows()[:-1])) if len(answers) > 1 else frozenset[Fence]()
        rows = self._claimed(answers).rows()
        if not rows:
            return ClaimReply(accepted=accepted)
        rows.sort(key=itemgetter(0))
        tasks = tuple(claimed_of(row[1:], row[5]) for row in rows)
        return ClaimReply(tasks, accepted, rows[0][-1], WorkerStatus.ACTIVE)

    def _answers(self) -> list[Answer]:
        assert self._flight is not None
        return self._database.land(self._flight)

    @staticmethod
    def _claimed(answers: Sequence[Answer]) -> Answer:
        return answers[-1]


def prepare(
    database: Database,
    claimant: Claimant,
    finishes: Sequence[Finish],
    lanes: Sequence[LaneClaim],
    limit: int,
) -> Ahead | None:
    """Return the ends and the claim, ready to be sent; None where something about them is not ordinary."""
    plain = spreading.is_plain(claimant, limit) and not claimant.concurrent and lanes and limit > 1
    if not plain or any(finish.status is not TaskStatus.DONE for finish in finishes):
        return None
    claim = {
        "worker": claimant.worker_id,
        "incarnation": claimant.incarnation,
        "lease": str(claimant.lease_seconds),
        "lanes": lanes_json(tuple(lanes)),
        "limit": str(limit),
    }
    if not finishes:
        return Ahead(database, [(_CLAIM, claim)])
    ends = _ends(claimant, finishes)
    return Ahead(database, [(_END, ends), (_CHECK, {"ids": ends["ids"]}), (_CLAIM, claim), (_COUNT, {})])


def _ends(claimant: Claimant, finishes: Sequence[Finish]) -> dict[str, str | None]:
    ordered = sorted(finishes, key=itemgetter(0))
    return {
        "worker": claimant.worker_id,
        "incarnation": claimant.incarnation,
        "ids": _array([str(finish.fence.task_id) for finish in ordered]),
        "tokens": _array([str(finish.fence.claim_token) for finish in ordered]),
        "results": _array([_quoted(finish.result_json) for finish in ordered]),
        "agos": _array([str(int(finish.started_seconds_ago * 1e6)) for finish in ordered]),
        "took": _array([str(finish.seconds) for finish in ordered]),
    }


def _array(values: Iterable[str]) -> str:
    return f"{{{','.join(values)}}}"


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
