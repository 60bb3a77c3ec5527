"""Schedules as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from fleet.cli.common import stored_text, warn
from fleet.domain.durations import format_seconds
from fleet.domain.jsontext import decode_object, encode
from fleet.domain.schedule import Schedule
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.domain.schedule import ScheduleRecord, Tick

SHOWN_TICKS = 3


def document(record: ScheduleRecord) -> dict[str, Any]:
    """Return a schedule as a JSON document."""
    schedule = record.schedule
    return {
        "name": schedule.name,
        "task": schedule.task,
        "payload": _payload(schedule),
        "options": dict(schedule.options),
        "cron": schedule.cron,
        "every_seconds": schedule.every_seconds,
        "tz": schedule.tz,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "paused": record.paused,
        "created_at": record.created_at,
        "starts_at": schedule.starts_at,
        "next_tick_at": record.next_tick_at,
        "last_tick_at": record.last_tick_at,
        "last_task_id": record.last_task_id,
    }


def _payload(schedule: Schedule) -> Any:
    """Return the payload; as text where a stranger made it unreadable."""
    try:
        return decode_object(schedule.payload_json, "payload")
    except UsageError:
        return schedule.payload_json


def tick_document(tick: Tick) -> dict[str, Any]:
    """Return a tick as a JSON document."""
    return {"tick_at": tick.tick_at, "outcome": tick.outcome, "task_id": tick.task_id}


def when(schedule: Schedule) -> str:
    """Return when it ticks, in few words."""
    if schedule.cron is not None:
        return schedule.cron
    try:
        return f"every {_exactly(schedule.every_seconds or 0)}"
    except TypeError:
        # A stranger's text; what is wrong with it is told where its next ticks are asked for.
        return f"every {schedule.every_seconds}"


def _exactly(seconds: float) -> str:
    shown = 1 if seconds < 3600 else 60 if seconds < 86_400 else 3600
    return format_seconds(seconds) if seconds % shown == 0 else f"{seconds:.15g}s"


def in_words(schedule: Schedule) -> str:
    """Return when it ticks, with the zone where that matters."""
    return f"{when(schedule)}, zone {schedule.tz}" if schedule.cron else when(schedule)


def facts(record: ScheduleRecord) -> list[tuple[str, str]]:
    """Return what is known of a schedule, as labels and texts."""
    schedule = record.schedule
    found = {
        "schedule": schedule.name + (" (paused)" if record.paused else ""),
        "when": in_words(schedule),
        "task": schedule.task,
        "payload": schedule.payload_json,
        "options": encode(dict(schedule.options), "options") if schedule.options else "",
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "created": stored_text(record.created_at),
        "start": stored_text(schedule.starts_at) if schedule.starts_at else "",
    }
    return [(label, str(value)) for label, value in found.items() if value]


def next_ticks(record: ScheduleRecord) -> list[datetime]:
    """Return the next ticks; none where it is paused, or a stranger made it unreadable."""
    from fleet.domain.schedule_options import task_of
    from fleet.domain.ticks import ticks_from

    if record.paused:
        return []
    try:
        task_of(record.schedule)
        return list(islice(ticks_from(record.schedule, record.next_tick_at, record.created_at), SHOWN_TICKS))
    except (TypeError, UsageError) as error:
        warn(str(error))
        return []


def tick_lines(record: ScheduleRecord) -> Iterator[str]:
    """Yield a line for each of the next ticks, in the zone and in UTC."""
    from fleet.domain.cron import zone_of

    for tick in next_ticks(record):
        local = _local(tick, zone_of(record.schedule.tz))
        yield f"next tick {local} {record.schedule.tz} = {stored_text(tick)}"


def _local(tick: datetime, zone: ZoneInfo) -> str:
    return tick.astimezone(zone).isoformat(sep=" ", timespec="seconds")


def table_rows(records: Iterable[ScheduleRecord]) -> list[list[Any]]:
    """Return schedules as the cells of a table."""
    return [
        [
            record.schedule.name,
            when(record.schedule),
            record.schedule.tz,
            record.schedule.task,
            "paused" if record.paused else record.next_tick_at,
            record.last_tick_at,
            record.last_task_id,
        ]
        for record in records
    ]
