"""How few and how many workers a pool may have at a moment: its own minimum and maximum, or those of a time of day.

A schedule is rules such as `mon-fri 08:00-20:00 Europe/Berlin min=4 max=40; sat min=1`. The first rule whose time it is
holds. Times are those of the wall clock there, whatever becomes of it twice a year. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from fleet.domain.cron import zone_of
from fleet.domain.policies.setting import MOST_WORKERS
from fleet.errors import UsageError

MOST_RULES = 50

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"(\d\d?):(\d\d)-(\d\d?):(\d\d)")
_LIMIT = re.compile(r"(min|max)=(\d{1,9}|none)")
_FORM = "write days, hours, zone, min=N and max=N, as in mon-fri 08:00-20:00 Europe/Berlin min=4 max=40; sat min=1"
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Bounds:
    """How few and how many workers there may be.

    Attributes:
        least: never fewer.
        most: never more; None is no limit.
        rule: the rule of the schedule that says so; None where the pool's own settings do.
    """

    least: int
    most: int | None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a schedule.

    Attributes:
        text: the rule as it was written.
        days: the days on which it begins, 0 is Monday.
        start, end: minutes after midnight; an end that is not after the start is one of the next day.
        zone: the name of the time zone.
        least, most: the bounds that it gives; a missing one is left to the pool.
        is_unlimited: whether it lifts the pool's maximum.
    """

    text: str
    days: frozenset[int]
    start: int
    end: int
    zone: str
    least: int | None
    most: int | None
    is_unlimited: bool

    def holds_at(self, moment: datetime) -> bool:
        """Return whether the wall clock of its zone shows its days and hours at this moment."""
        wall = moment.astimezone(zone_of(self.zone))
        minute, day = wall.hour * 60 + wall.minute, wall.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        yesterday = (wall.date() - timedelta(days=1)).weekday()
        return (day in self.days and minute >= self.start) or (yesterday in self.days and minute < self.end)


def bounds_at(moment: datetime, least: int, most: int | None, schedule: str | None) -> Bounds:
    """Return the bounds in force: of the first rule whose time it is, and of the pool where that says nothing.

    Where a minimum is above the maximum, the maximum holds.

    Args:
        moment: the time.
        least, most: the pool's own bounds.
        schedule: its schedule, None for none.

    Raises:
        UsageError: the schedule cannot be read.
    """
    for rule in rules_of(schedule or ""):
        if rule.holds_at(moment):
            upper = None if rule.is_unlimited else most if rule.most is None else rule.most
            return _consistent(least if rule.least is None else rule.least, upper, rule.text)
    return _consistent(least, most, None)


def _consistent(least: int, most: int | None, rule: str | None) -> Bounds:
    return Bounds(least if most is None else min(least, most), most, rule)


def read_schedule(given: object) -> str:
    """Return a schedule as it is stored: its rules as they were written, each with one blank between its words.

    Raises:
        UsageError: it is none; the message names the rule and says how one is written.
    """
    if not isinstance(given, str):
        raise UsageError(f"schedule {given!r:.60}: {_FORM}")
    return "; ".join(rule.text for rule in rules_of(given))


@lru_cache(maxsize=256)
def rules_of(schedule: str) -> tuple[Rule, ...]:
    """Return the rules of a schedule in their order; raise UsageError where one cannot be read."""
    texts = [" ".join(text.split()) for text in schedule.split(";")]
    texts = [text for text in texts if text]
    if len(texts) > MOST_RULES:
        raise UsageError(f"schedule with {len(texts)} rules: give {MOST_RULES} at most")
    rules: list[Rule] = []
    for text in texts:
        rules.append(_rule(text, rules[-1].zone if rules else "UTC"))
    return tuple(rules)


def _rule(text: str, zone: str) -> Rule:
    """Return one rule; its zone, where it names none, is that of the rule before it."""
    days: frozenset[int] | None = None
    hours: tuple[int, int] | None = None
    named: str | None = None
    limits: dict[str, int | None] = {}
    for word in text.split():
        if found := _LIMIT.fullmatch(word.lower()):
            _once(text, word, found[1] in limits)
            limits[found[1]] = _limit(text, word, found[1], found[2])
        elif found := _HOURS.fullmatch(word):
            _once(text, word, hours is not None)
            hours = _hours(text, found)
        elif word.lower()[:3] in _DAYS and "/" not in word:
            _once(text, word, days is not None)
            days = _days(text, word.lower())
        elif "=" not in word and not word[0].isdigit():
            _once(text, word, named is not None)
            named = _zone(text, word)
        else:
            raise _wrong(text, f"{word!r:.40} is none of its words")
    least, most = limits.get("min"), limits.get("max")
    if not limits:
        raise _wrong(text, "it gives neither min nor max")
    if least is not None and most is not None and least > most:
        raise _wrong(text, f"min {least} is above max {most}")
    start, end = hours or (0, _DAY)
    return Rule(
        text, frozenset(range(7)) if days is None else days, start, end, named or zone, least, most, _lifts(limits)
    )


def _lifts(limits: dict[str, int | None]) -> bool:
    return limits.get("max", 0) is None


def _once(text: str, word: str, is_second: bool) -> None:
    if is_second:
        raise _wrong(text, f"{word!r:.40} is one word too many of its kind")


def _limit(text: str, word: str, name: str, number: str) -> int | None:
    if number == "none":
        if name == "max":
            return None
        raise _wrong(text, "min is a whole number")
    if int(number) > MOST_WORKERS:
        raise _wrong(text, f"{word} is more than {MOST_WORKERS}")
    return int(number)


def _hours(text: str, found: re.Match[str]) -> tuple[int, int]:
    start, end = (int(found[at]) * 60 + int(found[at + 1]) for at in (1, 3))
    if start >= _DAY or end > _DAY or int(found[2]) > 59 or int(found[4]) > 59:
        raise _wrong(text, f"{found[0]} is no time of day")
    if start == end:
        raise _wrong(text, f"{found[0]} is no time at all: leave it out for whole days")
    return start, end


def _days(text: str, word: str) -> frozenset[int]:
    days: set[int] = set()
    for part in word.split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise _wrong(text, f"{word!r:.40} are no days: use {', '.join(_DAYS)}")
        at = _DAYS.index(first)
        days.add(at)
        while _DAYS[at] != (last or first):
            at = (at + 1) % 7
            days.add(at)
    return frozenset(days)


def _zone(text: str, word: str) -> str:
    try:
        zone_of(word)
    except UsageError as error:
        raise _wrong(text, str(error)) from None
    return word


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"schedule rule {text!r:.100}: {why}: {_FORM}")
