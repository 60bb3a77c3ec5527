"""Schedules in SQL: adding, replacing, pausing, removing them."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from fleet.clock import truncated
from fleet.domain.schedule import Schedule, ScheduleRecord, Tick, TickOutcome
from fleet.domain.schedule_options import task_of
from fleet.domain.ticks import next_after
from fleet.errors import ConflictError, UsageError
from fleet.storage import ticking
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.schedule_rows import COLUMNS, GET_TEXT, record_of, task_of_row, values_of
from fleet.storage.sql import Statement, time_of

_GET = Statement(GET_TEXT)
_LOCK = Statement(GET_TEXT, f"{GET_TEXT} FOR UPDATE")
_ALL = Statement(f"SELECT {COLUMNS} FROM work_schedule ORDER BY name")
_INSERT = Statement(
    f"""INSERT INTO work_schedule ({COLUMNS}) VALUES (:name, :task, :payload_json, :options_json, :cron,
        :every_seconds, :tz, :missed, :overlap, false, :created_at, :starts_at, :next_tick_at, NULL, NULL)
    ON CONFLICT (name) DO NOTHING"""
)
_REPLACE = Statement(
    """UPDATE work_schedule SET task = :task, payload_json = :payload_json, options_json = :options_json, cron = :cron,
        every_seconds = :every_seconds, tz = :tz, missed = :missed, overlap = :overlap, starts_at = :starts_at,
        created_at = :created_at, next_tick_at = :next_tick_at WHERE name = :name"""
)
_REMOVE = Statement("DELETE FROM work_schedule WHERE name = :name")
_FORGET_TICKS = Statement("DELETE FROM work_schedule_tick WHERE schedule = :name")
_PAUSE = Statement("UPDATE work_schedule SET paused = true WHERE name = :name")
_RESUME = Statement("UPDATE work_schedule SET paused = false, next_tick_at = :next WHERE name = :name")

_TICKS = Statement(
    """SELECT schedule, tick_at, outcome, task_id FROM work_schedule_tick WHERE schedule = :name
    ORDER BY tick_at DESC LIMIT :limit"""
)


class SqlSchedules:
    """Periodic tasks in one database.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, schedule: Schedule, *, replace: bool = False) -> ScheduleRecord:
        """Store a schedule; one that replaces another of the same times goes on with its next tick."""
        task_of(schedule)
        if schedule.starts_at is not None:
            schedule = dataclasses.replace(schedule, starts_at=truncated(schedule.starts_at))
        return self._database.write(lambda transaction: _add(transaction, schedule, replace), durable=True)

    def remove(self, name: str) -> bool:
        """Delete a schedule and its ticks."""

        def work(transaction: Transaction) -> bool:
            # The row first: who makes its ticks holds it.
            removed = transaction.touched(_REMOVE, name=name) > 0
            transaction.rows(_FORGET_TICKS, name=name)
            if removed:
                record_event(transaction, "schedule_removed", name, "removed with its ticks")
            return removed

        return self._database.write(work, durable=True)

    def pause(self, name: str, paused: bool) -> bool:
        """Leave out a schedule's ticks, or make them again from now on."""
        return self._database.write(lambda transaction: _pause(transaction, name, paused), durable=True)

    def get(self, name: str) -> ScheduleRecord | None:
        """Return one schedule."""
        row = self._database.read(lambda transaction: transaction.record(_GET, name=name))
        return record_of(row) if row else None

    def list(self) -> tuple[ScheduleRecord, ...]:
        """Return the schedules, by name."""
        return tuple(record_of(row) for row in self._database.read(lambda transaction: transaction.records(_ALL)))

    def ticks(self, name: str, limit: int = 20) -> tuple[Tick, ...]:
        """Return a schedule's ticks, newest first."""
        rows = self._database.read(lambda transaction: transaction.rows(_TICKS, name=name, limit=limit))
        return tuple(Tick(schedule, time_of(at), TickOutcome(outcome), task) for schedule, at, outcome, task in rows)

    def tick(self, limit: int = 100) -> int:
        """Make the ticks that are due, a transaction for each schedule."""
        return ticking.tick(self._database, limit)

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete old ticks, except each schedule's last."""
        return ticking.prune(self._database, older_than, limit)


def _add(transaction: Transaction, schedule: Schedule, replace: bool) -> ScheduleRecord:
    now = transaction.now
    first = next_after(schedule, now, now)
    if first is None:
        raise UsageError(f"schedule {schedule.name}: it would never tick: no time after its start matches")
    added = transaction.touched(_INSERT, **values_of(schedule), created_at=now, next_tick_at=first)
    if not added:
        if not replace:
            raise ConflictError(f"schedule {schedule.name} is there already: add --replace, or give another name")
        _replace(transaction, schedule, first)
    record_event(transaction, "schedule_added" if added else "schedule_replaced", schedule.name, _in_words(schedule))
    row = transaction.record(_GET, name=schedule.name)
    if row is None:
        raise ConflictError(f"schedule {schedule.name} was removed at this moment: add it again")
    return record_of(row)


def _replace(transaction: Transaction, schedule: Schedule, first: datetime) -> None:
    """Replace a schedule: with the same times it goes on as before, so that no tick that is due is lost."""
    row = transaction.record(_LOCK, name=schedule.name)
    if row is None:
        return
    before = record_of(row)
    same = before.schedule.same_times(schedule)
    created, next_tick = (before.created_at, before.next_tick_at) if same else (transaction.now, first)
    transaction.rows(_REPLACE, **values_of(schedule), created_at=created, next_tick_at=next_tick)


def _in_words(schedule: Schedule) -> str:
    times = f"cron {schedule.cron} {schedule.tz}" if schedule.cron else f"every {schedule.every_seconds:g} s"
    return f"{times}: {schedule.task}"


def _pause(transaction: Transaction, name: str, paused: bool) -> bool:
    row = transaction.record(_LOCK, name=name)
    if row is None:
        return False
    if bool(row["paused"]) == paused:
        return True
    if paused:
        transaction.rows(_PAUSE, name=name)
    else:
        record = record_of(row)
        task_of_row(row, record)
        following = next_after(record.schedule, transaction.now, record.created_at)
        transaction.rows(_RESUME, name=name, next=following)
    record_event(transaction, "schedule_paused" if paused else "schedule_resumed", name, "by request")
    return True
