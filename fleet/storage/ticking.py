"""Making ticks: a tick and its task are one transaction, and a tick's key decides between those who make it.

What was made is known by the schedule's next tick and by the rows of its ticks, never by its tasks: those are pruned.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from fleet import faultpoints
from fleet.domain.schedule import Overlap, Schedule, TickOutcome
from fleet.domain.task import NewTask
from fleet.domain.ticks import MAX_MISSED, Due, due
from fleet.errors import ConflictError, DatabaseError, FleetError
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.guards import OPEN
from fleet.storage.parameters import by_id
from fleet.storage.queue.enqueuing import add_tasks
from fleet.storage.schedule_rows import GET_TEXT, record_of, task_of_row
from fleet.storage.sql import Statement

_DUE = Statement(
    """SELECT name FROM work_schedule WHERE paused = false AND next_tick_at <= :now
    ORDER BY next_tick_at, name LIMIT :limit"""
)
# Who finds the row locked leaves it to the one who has it: a ticker that stands still keeps no other from its work.
_TAKE_TEXT = f"{GET_TEXT} AND paused = false AND next_tick_at <= :now"
_TAKE = Statement(_TAKE_TEXT, f"{_TAKE_TEXT} FOR UPDATE SKIP LOCKED")
# On a server, a key of the task (its dedupe key, its limit) may be held by a transaction of any length: the tick stays
# due, and whoever ticks has other schedules to tick, and beats to send.
_WAIT_BRIEFLY = Statement("SELECT 1", "SET LOCAL lock_timeout = 100")
_LOCK_NOT_AVAILABLE = "55P03"
# Of several that cannot tick it, one pauses it and tells why; one that was given other times since is left alone.
_GIVE_UP = Statement(
    "UPDATE work_schedule SET paused = true WHERE name = :name AND paused = false AND next_tick_at <= :now"
)
_ADD_TICK = Statement(
    """INSERT INTO work_schedule_tick (schedule, tick_at, outcome, created_at) VALUES (:name, :at, :outcome, :now)
    ON CONFLICT (schedule, tick_at) DO NOTHING"""
)
_NOTE_TASK = Statement(
    "UPDATE work_schedule_tick SET task_id = :task_id WHERE schedule = :name AND tick_at = :at",
)
_ADVANCE = Statement(
    """UPDATE work_schedule SET next_tick_at = :next, last_tick_at = :last, last_task_id = :task_id
    WHERE name = :name"""
)
_IS_OPEN = by_id(f"SELECT 1 FROM work_queue WHERE id = :id AND {OPEN}")
# A schedule's last tick stays, whatever its age.
_OLD_TICKS = """SELECT t.schedule, t.tick_at FROM work_schedule s JOIN work_schedule_tick t ON t.schedule = s.name
    WHERE t.tick_at < :cutoff AND t.created_at < :cutoff AND t.tick_at < s.last_tick_at LIMIT :limit"""
_ANY_OLD_TICK = Statement(_OLD_TICKS)
_DELETE_TICKS = Statement(f"DELETE FROM work_schedule_tick WHERE (schedule, tick_at) IN ({_OLD_TICKS})")

_MAX_HELD = 20
"""Schedules of a pass whose keys others may hold: each has cost a short wait."""


class _HeldError(Exception):
    """Another's transaction holds what a tick needs."""


def tick(database: Database, limit: int) -> int:
    """Make the ticks of up to `limit` schedules that are due; return how many tasks were enqueued."""
    names = database.read(lambda transaction: transaction.rows(_DUE, now=transaction.now, limit=limit))
    made = held = 0
    for (name,) in names:
        try:
            made += _tick_one(database, name)
        except _HeldError:
            held += 1
            if held == _MAX_HELD:
                break
    return made


def _tick_one(database: Database, name: str) -> int:
    try:
        return database.write(lambda transaction: _tick_unless_held(transaction, name), durable=True)
    except (DatabaseError, OSError, MemoryError, _HeldError):
        # They tell of the machine or of others, not of the schedule.
        raise
    except ConflictError:
        # A key changed hands again and again: the tick is due still, and the next pass makes it.
        return 0
    except Exception as error:
        reason = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
        database.write(lambda transaction: _give_up(transaction, name, reason))
        return 0


def prune(database: Database, older_than: float, limit: int) -> int:
    """Delete old ticks, except each schedule's last; return how many."""

    def values(transaction: Transaction, limit: int) -> dict[str, Any]:
        return {"cutoff": transaction.now - timedelta(seconds=older_than), "limit": limit}

    if not database.read(lambda transaction: transaction.rows(_ANY_OLD_TICK, **values(transaction, 1))):
        return 0
    return database.write(lambda transaction: transaction.touched(_DELETE_TICKS, **values(transaction, limit)))


def _give_up(transaction: Transaction, name: str, reason: str) -> None:
    if transaction.touched(_GIVE_UP, name=name, now=transaction.now):
        record_event(transaction, "schedule_paused", name, f"it cannot be ticked, and is paused: {reason}")


def _tick_unless_held(transaction: Transaction, name: str) -> int:
    transaction.rows(_WAIT_BRIEFLY)
    try:
        return _tick(transaction, name)
    except Exception as error:
        if getattr(error, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            raise _HeldError from error
        raise


def _tick(transaction: Transaction, name: str) -> int:
    """Make the due ticks of one schedule, unless another has made them or does; return how many tasks were enqueued."""
    row = transaction.record(_TAKE, name=name, now=transaction.now)
    if row is None:
        return 0
    record = record_of(row)
    task = task_of_row(row, record)
    first = record.next_tick_at or transaction.now
    settled = due(record.schedule, first, transaction.now, record.created_at)
    _miss(transaction, name, settled)
    last_task, made = record.last_task_id, 0
    for tick_at in settled.made:
        task_id = _make(transaction, record.schedule, tick_at, task, last_task)
        if task_id is not None:
            last_task, made = task_id, made + 1
    transaction.rows(_ADVANCE, name=name, next=settled.next, last=settled.last, task_id=last_task)
    return made


def _make(
    transaction: Transaction, schedule: Schedule, tick_at: datetime, task: NewTask, last_task: int | None
) -> int | None:
    """Write one tick and its task; return the task's id, None when the tick was there or is left out."""
    skipped = schedule.overlap is Overlap.SKIP and _is_open(transaction, last_task)
    outcome = TickOutcome.SKIPPED if skipped else TickOutcome.ENQUEUED
    if not _add_tick(transaction, schedule.name, tick_at, outcome) or skipped:
        return None
    faultpoints.reach("schedule.ticked")
    (task_id,) = add_tasks(transaction, [task]).ids
    transaction.rows(_NOTE_TASK, name=schedule.name, at=tick_at, task_id=task_id)
    return task_id


def _is_open(transaction: Transaction, task_id: int | None) -> bool:
    return task_id is not None and transaction.value(_IS_OPEN, id=task_id) is not None


def _miss(transaction: Transaction, name: str, settled: Due) -> None:
    _add_missed(transaction, name, settled.missed)
    if settled.unrecorded:
        record_event(
            transaction,
            "schedule_missed",
            name,
            f"more than {MAX_MISSED} ticks up to {settled.last:%Y-%m-%dT%H:%M:%SZ} were missed; the first "
            f"{MAX_MISSED} of them are recorded",
        )


def _add_missed(transaction: Transaction, name: str, ticks: Iterable[datetime]) -> None:
    outcome = TickOutcome.MISSED.value
    rows = [{"name": name, "at": tick_at, "outcome": outcome, "now": transaction.now} for tick_at in ticks]
    if rows:
        transaction.many(_ADD_TICK, rows)


def _add_tick(transaction: Transaction, name: str, tick_at: datetime, outcome: TickOutcome) -> bool:
    """Write a tick; return False when it is there already: whoever wrote it has made it."""
    return transaction.touched(_ADD_TICK, name=name, at=tick_at, outcome=outcome.value, now=transaction.now) > 0
