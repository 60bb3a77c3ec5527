"""How workers are, and quarantines, in SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from fleet.domain.health import HealthStatus, is_news
from fleet.domain.jsontext import printable
from fleet.domain.lanes import Lane
from fleet.domain.quarantine import Misfire, NewQuarantine, Quarantine, Scope
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.forgetting import Ended, forget
from fleet.storage.interfaces import HealthChange, Part
from fleet.storage.rows import WORKER_COLUMNS, dumps, lane_of, mapping, worker_of
from fleet.storage.sql import Row, Statement, as_time, time_of

MOST_MISFIRES = 500
"""Misfires of one worker that are looked at: more evidence makes no stronger case."""

_RECORD = Statement(
    """UPDATE worker_registry SET health = :health, health_json = :checks
    WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating')"""
)
# The task's row names who did it; an attempt of the same worker is none of another.
_MISFIRES = Statement(
    """SELECT a.worker, a.task_id, a.error, a.ended_at, q.worker, d.host
    FROM work_attempt a JOIN work_queue q ON q.id = a.task_id
    LEFT JOIN worker_registry d ON d.worker_id = q.worker
    WHERE a.worker = :worker AND a.ended_at >= :since AND a.outcome IN ('failed', 'lost')
        AND q.status = 'done' AND q.worker <> a.worker
    ORDER BY a.ended_at DESC LIMIT :limit"""
)
_LIVE = "FROM worker_registry WHERE status IN ('active', 'terminating')"
_COUNT_LIVE = Statement(f"SELECT count(*) {_LIVE}")
_PART = Statement(f"SELECT {WORKER_COLUMNS} {_LIVE} ORDER BY worker_id LIMIT :most OFFSET :first")
_WANTED_LANES = Statement(
    """SELECT l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker FROM claim_lane l
    WHERE EXISTS (SELECT 1 FROM work_queue w WHERE w.status = 'pending' AND w.lane_id = l.lane_id)
        AND NOT EXISTS (SELECT 1 FROM queue_setting s WHERE s.queue = l.queue AND s.paused
            AND (s.paused_until IS NULL OR s.paused_until > :now))
    ORDER BY l.lane_id"""
)

_COLUMNS = "id, scope, subject, evidence_json, reason, created_at, until, released_at, released_by"
_BEGIN = Statement(
    f"""INSERT INTO quarantine (scope, subject, evidence_json, reason, created_at, until)
    VALUES (:scope, :subject, :evidence, :reason, :now, :until) ON CONFLICT DO NOTHING RETURNING {_COLUMNS}"""
)
_END = "UPDATE quarantine SET released_at = :now, released_by = :by WHERE released_at IS NULL AND "
_END_SUBJECT = Statement(f"{_END} subject = :subject RETURNING {_COLUMNS}")
_END_ONE = Statement(f"{_END} id = :id RETURNING {_COLUMNS}")
_ANY_OVERDUE = Statement("SELECT 1 FROM quarantine WHERE released_at IS NULL AND until <= :now LIMIT 1")
_END_OVERDUE = Statement(f"{_END} until <= :now RETURNING {_COLUMNS}")
_OPEN = Statement(f"SELECT {_COLUMNS} FROM quarantine WHERE released_at IS NULL ORDER BY id DESC")
_ALL = Statement(f"SELECT {_COLUMNS} FROM quarantine ORDER BY id DESC")
_ENDED = (
    Ended("quarantine", "id", "e.released_at < :cutoff", oldest=True),
    Ended(
        "worker_command",
        "command_id",
        "e.status NOT IN ('pending', 'taken') AND e.finished_at < :cutoff",
        oldest=True,
    ),
)
_LARGEST_ID = 2**63 - 1


class SqlHealthRecords:
    """`HealthRecords` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def part(self, turn: int, most: int) -> Part:
        """Return some of the live workers; which ones, the turn says."""
        return self._database.read(lambda transaction: _part(transaction, turn, most))

    def record(self, changes: Sequence[HealthChange]) -> tuple[str, ...]:
        """Store how workers are."""
        if not changes:
            return ()
        ordered = sorted(changes, key=lambda change: change.worker.worker_id)
        return self._database.write(
            lambda transaction: tuple(line for line in (_record(transaction, change) for change in ordered) if line)
        )

    def misfires(self, workers: Collection[str], since: datetime) -> tuple[Misfire, ...]:
        """Return what these workers failed and others did."""

        def read(transaction: Transaction) -> tuple[Misfire, ...]:
            return tuple(
                Misfire(row[0], row[1], row[2], time_of(row[3]), row[4], row[5])
                for worker in sorted(workers)
                for row in transaction.rows(_MISFIRES, worker=worker, since=since, limit=MOST_MISFIRES)
            )

        return self._database.read(read)

    def wanted_lanes(self) -> tuple[Lane, ...]:
        """Return the lanes in which tasks wait for a worker."""
        rows = self._database.read(lambda transaction: transaction.rows(_WANTED_LANES, now=transaction.now))
        return tuple(map(lane_of, rows))

    def quarantine(self, new: NewQuarantine) -> Quarantine | None:
        """Begin a quarantine."""
        return self._database.write(lambda transaction: _begin(transaction, new))

    def release(self, what: str, by: str) -> tuple[Quarantine, ...]:
        """End quarantines of a subject, or the one of an id."""

        def write(transaction: Transaction) -> list[Row]:
            rows = transaction.records(_END_SUBJECT, subject=what, by=by, now=transaction.now)
            if not rows and what.isascii() and what.isdigit() and int(what) <= _LARGEST_ID:
                rows = transaction.records(_END_ONE, id=int(what), by=by, now=transaction.now)
            _tell_ends(transaction, rows)
            return rows

        return tuple(map(_quarantine, self._database.write(write)))

    def release_overdue(self) -> tuple[str, ...]:
        """End the quarantines whose time is over."""
        if not self._database.read(lambda transaction: transaction.rows(_ANY_OVERDUE, now=transaction.now)):
            return ()

        def write(transaction: Transaction) -> tuple[str, ...]:
            return _tell_ends(transaction, transaction.records(_END_OVERDUE, by="time", now=transaction.now))

        return self._database.write(write)

    def quarantines(self, *, open_only: bool = True) -> tuple[Quarantine, ...]:
        """Return quarantines, newest first."""
        statement = _OPEN if open_only else _ALL
        return tuple(map(_quarantine, self._database.read(lambda transaction: transaction.records(statement))))

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete quarantines and orders that ended long ago."""
        return forget(self._database, _ENDED, older_than, limit)


def _part(transaction: Transaction, turn: int, most: int) -> Part:
    live = int(transaction.value(_COUNT_LIVE))
    parts = max(1, -(-live // most))
    # Parts of one size: else the last one would have few, and be looked at as often.
    size = -(-live // parts)
    rows = transaction.records(_PART, most=size, first=turn % parts * size)
    return Part(tuple(map(worker_of, rows)), parts == 1)


def _record(transaction: Transaction, change: HealthChange) -> str:
    """Store how one worker is; return the line of its event, "" where there is none."""
    worker, health = change.worker, change.health
    if not transaction.touched(
        _RECORD,
        worker=worker.worker_id,
        incarnation=worker.incarnation,
        health=str(health.status),
        checks=dumps(health.as_json()),
    ):
        return ""
    if not is_news(worker.health, health.status):
        return ""
    text = f"{health.status}, was {worker.health or 'not assessed'}: {'; '.join(health.reasons) or 'all checks pass'}"
    record_event(transaction, "worker_health", worker.worker_id, text)
    return f"worker {worker.worker_id} is {text}" if health.status is HealthStatus.UNHEALTHY else ""


def _begin(transaction: Transaction, new: NewQuarantine) -> Quarantine | None:
    row = transaction.record(
        _BEGIN,
        scope=str(new.scope),
        subject=new.subject,
        evidence=json.dumps(_printable(dict(new.evidence))),
        reason=printable(new.reason, 2_000),
        now=transaction.now,
        until=transaction.now + timedelta(seconds=new.seconds),
    )
    if row is None:
        return None
    begun = _quarantine(row)
    tasks = [task.get("task_id") for task in begun.evidence.get("tasks", ())]
    record_event(
        transaction,
        "quarantine_begun",
        begun.subject,
        f"{begun.scope} until {begun.until:%Y-%m-%d %H:%M:%S}Z (quarantine {begun.quarantine_id}): {begun.reason}; "
        f"tasks {tasks}",
    )
    return begun


def _printable(evidence: dict[str, object]) -> dict[str, object]:
    """Return evidence whose errors any database takes, cut to a length that a table of them can show."""
    tasks = evidence.get("tasks")
    if not isinstance(tasks, list):
        return evidence
    return {**evidence, "tasks": [{**task, "error": printable(str(task.get("error") or ""), 300)} for task in tasks]}


def _tell_ends(transaction: Transaction, rows: Sequence[Row]) -> tuple[str, ...]:
    lines = []
    for ended in map(_quarantine, rows):
        text = f"{ended.scope} (quarantine {ended.quarantine_id}): released by {ended.released_by}"
        record_event(transaction, "quarantine_ended", ended.subject, text)
        lines.append(f"quarantine of {ended.scope} {ended.subject} is over: released by {ended.released_by}")
    return tuple(lines)


def _quarantine(row: Row) -> Quarantine:
    return Quarantine(
        quarantine_id=row["id"],
        scope=Scope(row["scope"]),
        subject=row["subject"],
        evidence=mapping(row["evidence_json"]),
        reason=row["reason"],
        created_at=time_of(row["created_at"]),
        until=time_of(row["until"]),
        released_at=as_time(row["released_at"]),
        released_by=row["released_by"],
    )
