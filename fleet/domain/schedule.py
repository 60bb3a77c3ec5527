"""Schedules: what is enqueued again and again, when, and what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Missed(StrEnum):
    """What becomes of ticks that nobody was there to make."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What becomes of a tick while the task of an earlier one is still open."""

    SKIP = "skip"
    ALLOW = "allow"


class TickOutcome(StrEnum):
    """What became of a tick."""

    ENQUEUED = "enqueued"
    SKIPPED = "skipped"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is enqueued again and again, and when.

    Attributes:
        name: its name.
        task: the handler's name.
        payload_json: a JSON object as text.
        options: what else the task gets, as JSON values by the names of `NewTask` (queue, priority, timeout, ...).
        cron: five fields, as cron reads them; None for an interval.
        every_seconds: the interval; None for cron.
        tz: the zone in which cron's fields are read (an IANA name).
        missed: what becomes of missed ticks.
        overlap: what becomes of ticks that overtake the last task.
        starts_at: no tick before this; an interval counts from it.
    """

    name: str
    task: str
    payload_json: str = "{}"
    options: Mapping[str, Any] = field(default_factory=dict)
    cron: str | None = None
    every_seconds: float | None = None
    tz: str = "UTC"
    missed: Missed = Missed.LATEST
    overlap: Overlap = Overlap.SKIP
    starts_at: datetime | None = None

    def same_times(self, other: Schedule) -> bool:
        """Return whether both tick at the same times."""
        return (self.cron, self.every_seconds, self.tz, self.starts_at) == (
            other.cron,
            other.every_seconds,
            other.tz,
            other.starts_at,
        )


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A row of `work_schedule`.

    Attributes:
        schedule: what was given.
        paused: whether its ticks are left out for now.
        created_at: when it was added.
        next_tick_at: its next tick; None when it has none.
        last_tick_at: its last tick that was made or counted as missed.
        last_task_id: the task of its last tick that had one.
    """

    schedule: Schedule
    paused: bool
    created_at: datetime
    next_tick_at: datetime | None
    last_tick_at: datetime | None
    last_task_id: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A row of `work_schedule_tick`.

    Attributes:
        schedule: the schedule's name.
        tick_at: when it was due.
        outcome: what became of it.
        task_id: the task enqueued for it, if one was.
    """

    schedule: str
    tick_at: datetime
    outcome: TickOutcome
    task_id: int | None
