"""Cron's five fields, read in a time zone; pure arithmetic, with `cronsim` for the fields and `zoneinfo` for the zone.

Daylight saving follows Debian's cron (man 8 cron), for shifts of any length:

- A fixed time (neither the minute nor the hour field begins with `*`) comes once a day. Where the clock jumps over it,
  it comes at the first moment after the gap (several in one gap become one); where it occurs twice, the first counts.
- Everything else follows elapsed time: each real minute whose wall clock matches. What falls into a gap is left out,
  and what occurs twice comes twice.

`cronsim` is given naive times only: its own walk over a shift of half an hour (Australia/Lord_Howe) loses minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fleet.errors import UsageError

MAX_CHARACTERS = 200

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
# These name whatever the machine at hand is set to.
_NO_ZONES = frozenset({"", "localtime", "posixrules"})


def check_cron(text: str) -> str:
    """Return the text of five cron fields; raise UsageError when it is none, or never matches."""
    fields = text.split()
    if len(fields) != 5 or len(text) > MAX_CHARACTERS:
        raise UsageError(f"cron {text[:MAX_CHARACTERS]!r}: {_FORM}")
    try:
        next(CronSim(text, datetime(2000, 1, 1)))
    except CronSimError as error:
        raise UsageError(f"cron {text!r}: {str(error).lower()}: {_FORM}") from None
    except StopIteration:
        raise UsageError(f"cron {text!r}: no day of any year matches it") from None
    return text


_FORM = "write minute, hour, day of month, month and day of week, such as '*/5 * * * *' or '30 6 * * MON-FRI'"


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name; raise UsageError when there is none, or it means another one elsewhere."""
    try:
        if name in _NO_ZONES:
            raise ValueError
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"time zone {name[:100]!r}: there is none: give an IANA name such as Europe/Prague or UTC"
        ) from None


def cron_after(text: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the first time after `moment` at which cron fields match in a zone.

    Args:
        text: the five fields, checked.
        zone: where its clock hangs.
        moment: an aware time.

    Returns:
        An aware UTC time; None when the fields match no more (within 50 years, or before the calendar ends).
    """
    try:
        search = _fixed if is_fixed(text) else _elapsed
        return search(text, zone, moment.astimezone(UTC))
    except (StopIteration, OverflowError, ValueError):
        return None


@lru_cache(maxsize=1_000)
def is_fixed(text: str) -> bool:
    """Return whether the fields say fixed times of the day, which come once whatever the clock does."""
    minute, hour, *_ = text.split()
    return not minute.startswith("*") and not hour.startswith("*")


def _fixed(text: str, zone: ZoneInfo, moment: datetime) -> datetime:
    for wall in _walls(text, _wall(zone, moment)):
        found = _first_moment(zone, wall)
        # In the second of two equal hours, walls that were passed in the first come again.
        if found > moment:
            return found
    raise StopIteration


def _first_moment(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return the moment at which a zone's clock first shows `wall`, or that at which it has jumped over it."""
    found = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall(zone, found) == wall:
        return found
    return _first_change(zone, found - _DAY, found) or found


def _elapsed(text: str, zone: ZoneInfo, moment: datetime) -> datetime:
    """Search from one change of the zone's offset to the next: in between, wall time and elapsed time are the same."""
    found = _match(text, moment, _offset(zone, moment))
    while (change := _first_change(zone, moment, found)) is not None:
        moment = change
        found = _match(text, moment - _SECOND, _offset(zone, moment))
    return found


def _match(text: str, moment: datetime, offset: timedelta) -> datetime:
    wall = next(_walls(text, (moment + offset).replace(tzinfo=None)))
    return (wall - offset).replace(tzinfo=UTC)


def _walls(text: str, after: datetime) -> Iterator[datetime]:
    return CronSim(text, after)


def _wall(zone: ZoneInfo, moment: datetime) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _first_change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """Return the first moment in (start, end] at which the zone's offset is a new one."""
    while start < end:
        stop = min(start + _DAY, end)
        if _offset(zone, stop) != _offset(zone, start):
            return _change(zone, start, stop)
        start = stop
    return None


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Halve until a second is left: changes happen at whole seconds."""
    old = _offset(zone, before)
    before, after = before.replace(microsecond=0), after if after.microsecond == 0 else _next_second(after)
    while after - before > _SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        before, after = (middle, after) if _offset(zone, middle) == old else (before, middle)
    return after


def _next_second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0) + _SECOND
