"""The history of attempts that did not succeed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fleet.domain.ending import Held
from fleet.domain.execution import AttemptRecord, Finish, Outcome
from fleet.domain.task import TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.parameters import by_ids
from fleet.storage.sql import Row, Statement, as_time, time_of

KEPT = 100
"""Attempts of one task whose history is kept: the newest."""

_COLUMNS = """task_id, claim_token, attempt, worker, incarnation, outcome, error, error_kind, traceback, exit_code,
    signal, peak_memory_mb, started_at, ended_at"""
_ADD = Statement(
    f"""INSERT INTO work_attempt ({_COLUMNS}) VALUES (:task_id, :claim_token, :attempt, :worker, :incarnation,
        :outcome, :error, :error_kind, :traceback, :exit_code, :signal, :peak_memory_mb, :started_at, :ended_at)
    ON CONFLICT DO NOTHING"""
)
_FORGET_OLD = Statement("DELETE FROM work_attempt WHERE task_id = :task_id AND claim_token <= :before")
_OF_TASK = Statement(f"SELECT {_COLUMNS} FROM work_attempt WHERE task_id = :task_id ORDER BY claim_token")
FORGET = by_ids("DELETE FROM work_attempt WHERE task_id IN {ids}")


def attempt_of(held: Held, finish: Finish, worker_id: str, incarnation: str, now: datetime) -> AttemptRecord:
    """Return the record of an execution that ended as `finish` says."""
    began = held.started_at or (now - timedelta(seconds=finish.started_seconds_ago))
    return AttemptRecord(
        task_id=finish.fence.task_id,
        claim_token=finish.fence.claim_token,
        attempt=held.attempt,
        worker=worker_id,
        incarnation=incarnation,
        outcome=_outcome(finish),
        error=finish.error,
        error_kind=finish.error_kind,
        traceback=finish.traceback,
        exit_code=finish.exit_code,
        signal=finish.signal,
        peak_memory_mb=finish.peak_memory_mb,
        started_at=began,
        ended_at=now,
    )


def _outcome(finish: Finish) -> Outcome:
    if finish.status is TaskStatus.CANCELLED:
        return Outcome.CANCELLED
    if finish.interruption:
        return Outcome.INTERRUPTED
    return Outcome.LOST if finish.error_kind == "worker_lost" else Outcome.FAILED


def add(transaction: Transaction, attempts: Sequence[AttemptRecord]) -> None:
    """Add attempts, and forget the oldest of tasks that have very many."""
    if not attempts:
        return
    transaction.many(_ADD, [_row(attempt) for attempt in attempts])
    for attempt in attempts:
        if attempt.claim_token > KEPT:
            transaction.rows(_FORGET_OLD, task_id=attempt.task_id, before=attempt.claim_token - KEPT)


def _row(attempt: AttemptRecord) -> Row:
    names = [name.strip() for name in _COLUMNS.split(",")]
    return {**{name: getattr(attempt, name) for name in names}, "outcome": str(attempt.outcome)}


def of_task(transaction: Transaction, task_id: int) -> tuple[AttemptRecord, ...]:
    """Return a task's attempts that did not succeed, oldest first."""
    return tuple(_record(row) for row in transaction.records(_OF_TASK, task_id=task_id))


def _record(row: Row) -> AttemptRecord:
    return AttemptRecord(
        **{
            **row,
            "outcome": Outcome(row["outcome"]),
            "started_at": as_time(row["started_at"]),
            "ended_at": time_of(row["ended_at"]),
        }
    )
