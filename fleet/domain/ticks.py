"""Which ticks of a schedule are due, and what becomes of those that nobody was there to make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from fleet.domain.cron import cron_after, zone_of
from fleet.domain.schedule import Missed, Schedule

PUNCTUAL = 60.0
"""Seconds by which a tick may be late before it counts as missed, where missed ones are left out."""

MAX_TASKS = 100
"""Tasks that a schedule enqueues at once."""

MAX_MISSED = 1_000
"""Missed ticks that are recorded at once: of a longer absence, the first ones."""

_GRAIN = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done for a schedule now.

    Attributes:
        made: ticks that are made, oldest first.
        missed: ticks that are recorded as missed, oldest first.
        unrecorded: whether more were missed than are recorded.
        last: the newest tick that this settles.
        next: the tick after that; None when there is none.
    """

    made: tuple[datetime, ...]
    missed: tuple[datetime, ...]
    unrecorded: bool
    last: datetime
    next: datetime | None


def next_after(schedule: Schedule, moment: datetime, anchor: datetime) -> datetime | None:
    """Return a schedule's first tick after `moment`.

    Args:
        schedule: a checked schedule.
        moment: an aware time.
        anchor: what an interval counts from where the schedule says no start: when it was added.

    Returns:
        An aware UTC time; None when it ticks no more.
    """
    start = schedule.starts_at
    if schedule.every_seconds is not None:
        every = interval(schedule.every_seconds)
        return _interval_after(anchor + every if start is None else start, every, moment)
    if start is not None and moment < start:
        # A tick at the start itself is one.
        moment = start - _GRAIN
    return cron_after(str(schedule.cron), zone_of(schedule.tz), moment)


def interval(seconds: float) -> timedelta:
    """Return an interval in whole milliseconds, as times are stored."""
    return timedelta(milliseconds=round(seconds * 1000))


def _interval_after(first: datetime, every: timedelta, moment: datetime) -> datetime | None:
    if moment < first:
        return first
    try:
        return first + ((moment - first) // every + 1) * every
    except OverflowError:
        return None


def ticks_from(schedule: Schedule, first: datetime | None, anchor: datetime) -> Iterator[datetime]:
    """Yield a tick and those after it, for ever or until there are no more: take only as many as are wanted."""
    tick = first
    while tick is not None:
        yield tick
        tick = next_after(schedule, tick, anchor)


def due(schedule: Schedule, first: datetime, now: datetime, anchor: datetime, limit: int = MAX_TASKS) -> Due:
    """Return what is to be done about a schedule whose next tick is `first`, which is not after `now`.

    Args:
        schedule: a checked schedule.
        first: its next tick as stored.
        now: the present time.
        anchor: see `next_after`.
        limit: how many ticks are made at most; those beyond it are due still.
    """
    made, missed, last = _sorted(schedule, first, now, anchor, limit)
    recorded = tuple(missed[:MAX_MISSED])
    return Due(tuple(made), recorded, len(missed) > MAX_MISSED, last, next_after(schedule, last, anchor))


def _sorted(
    schedule: Schedule, first: datetime, now: datetime, anchor: datetime, limit: int
) -> tuple[list[datetime], list[datetime], datetime]:
    """Return the ticks to make, those missed (at most one more than is recorded), and the last that is settled."""
    if schedule.missed is Missed.ALL:
        made = _until(schedule, first, now, anchor, limit)
        return made, [], made[-1]
    newest = newest_until(schedule, first, now, anchor)
    if schedule.missed is Missed.LATEST:
        older = _until(schedule, first, newest - _GRAIN, anchor, MAX_MISSED + 1)
        return [newest], older, newest
    cut = now - timedelta(seconds=PUNCTUAL)
    missed = _until(schedule, first, cut - _GRAIN, anchor, MAX_MISSED + 1)
    start = first if first >= cut else next_after(schedule, cut - _GRAIN, anchor)
    made = [] if start is None else _until(schedule, start, now, anchor, limit)
    return made, missed, made[-1] if made else newest


def _until(schedule: Schedule, first: datetime, end: datetime, anchor: datetime, most: int) -> list[datetime]:
    ticks = islice(ticks_from(schedule, first, anchor), most)
    found = []
    for tick in ticks:
        if tick > end:
            break
        found.append(tick)
    return found


def newest_until(schedule: Schedule, first: datetime, now: datetime, anchor: datetime) -> datetime:
    """Return the newest tick that is not after `now`, however many there are since `first`."""
    second = next_after(schedule, first, anchor)
    if second is None or second > now:
        return first
    # The tick after `low` is due, the tick after `high` is not: halved until no tick is between them.
    low, high = first, now
    while high - low > _GRAIN:
        middle = low + (high - low) / 2
        found = next_after(schedule, middle, anchor)
        if found is not None and found <= now:
            low = found
        else:
            high = middle
    return low
