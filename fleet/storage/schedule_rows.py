"""Schedules as rows."""

from __future__ import annotations

from typing import Any

from fleet.domain.schedule import Missed, Overlap, Schedule, ScheduleRecord
from fleet.domain.schedule_options import task_of
from fleet.domain.task import NewTask
from fleet.errors import UsageError
from fleet.storage.rows import dumps, loads, mapping
from fleet.storage.sql import Row, as_time, time_of

COLUMNS = """name, task, payload_json, options_json, cron, every_seconds, tz, missed, overlap, paused, created_at,
    starts_at, next_tick_at, last_tick_at, last_task_id"""
GET_TEXT = f"SELECT {COLUMNS} FROM work_schedule WHERE name = :name"


def record_of(row: Row) -> ScheduleRecord:
    """Return a row of `work_schedule` as a record; options that are no object are left out.

    Raises:
        UsageError: a stranger wrote a time that is none.
    """
    try:
        return _record(row)
    except (TypeError, ValueError) as error:
        raise UsageError(_unreadable(row["name"], error)) from None


def _unreadable(name: str, error: Exception) -> str:
    return f"schedule {name}: its row cannot be read: {error}: correct it, or: fleet schedule remove {name}"


def _record(row: Row) -> ScheduleRecord:
    return ScheduleRecord(
        schedule=Schedule(
            name=row["name"],
            task=row["task"],
            payload_json=row["payload_json"],
            options=mapping(row["options_json"]),
            cron=row["cron"],
            every_seconds=row["every_seconds"],
            tz=row["tz"],
            missed=Missed(row["missed"]),
            overlap=Overlap(row["overlap"]),
            starts_at=as_time(row["starts_at"]),
        ),
        paused=bool(row["paused"]),
        created_at=time_of(row["created_at"]),
        next_tick_at=as_time(row["next_tick_at"]),
        last_tick_at=as_time(row["last_tick_at"]),
        last_task_id=row["last_task_id"],
    )


def task_of_row(row: Row, record: ScheduleRecord) -> NewTask:
    """Return the task that a stored schedule enqueues; raise UsageError where a stranger made the row unreadable."""
    if not isinstance(loads(row["options_json"]), dict):
        raise UsageError(f"schedule {record.schedule.name}: options_json is no JSON object")
    try:
        return task_of(record.schedule)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        # SQLite keeps values of any type in any column.
        raise UsageError(_unreadable(record.schedule.name, error)) from None


def values_of(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as column values."""
    return {
        "name": schedule.name,
        "task": schedule.task,
        "payload_json": schedule.payload_json,
        "options_json": dumps(dict(schedule.options)),
        "cron": schedule.cron,
        "every_seconds": schedule.every_seconds,
        "tz": schedule.tz,
        "missed": schedule.missed.value,
        "overlap": schedule.overlap.value,
        "starts_at": schedule.starts_at,
    }
