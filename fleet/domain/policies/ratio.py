"""Numbers of workers by tasks for each worker: a band in which the number stays. Pure, and shared by policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import held, lonely, one_more, whole
from fleet.errors import UsageError

UPPER, LOWER = "upper_task_ratio", "lower_task_ratio"
LEAST_RATIO, MOST_RATIO = 0.01, 1_000_000


def settings(upper: float, lower: float) -> tuple[Setting, ...]:
    """Return the two settings of a band, with these defaults."""
    return (
        Setting(UPPER, Kind.NUMBER, upper, "more tasks for each worker start workers", LEAST_RATIO, MOST_RATIO),
        Setting(LOWER, Kind.NUMBER, lower, "fewer tasks for each worker take workers away", 0, MOST_RATIO),
    )


def check(given: Mapping[str, Any]) -> None:
    """Raise UsageError where the band has no inside."""
    if given[LOWER] > given[UPPER]:
        raise UsageError(
            f"{LOWER} {given[LOWER]:g} is above {UPPER} {given[UPPER]:g}: workers would be started and taken away "
            "again and again: give a lower one that is not above"
        )


@dataclass(frozen=True, slots=True)
class Band:
    """A number of workers, and why.

    Attributes:
        workers: the number.
        code: `scale_up`, `scale_down`, `within` or `nobody_able`.
        text: why, in words.
        requires: what new ones must offer.
    """

    workers: int
    code: str
    text: str
    requires: tuple[Mapping[str, float], ...] = ()


def banded(situation: Situation) -> Band:
    """Return the number nearest to the supply at which tasks for each worker lie in the band.

    Tasks are those that wait or run. Work that nobody here can do gets one worker more, whatever the band says.
    """
    upper, lower = situation.settings[UPPER], situation.settings[LOWER]
    tasks, supply = situation.outstanding, situation.supply
    least = whole(tasks / upper)
    most = floor(tasks / lower + 1e-9) if lower else max(supply, least)
    number = held(situation, min(max(supply, least), max(least, most)))
    apart = lonely(situation)
    if apart and number <= supply:
        number, text = one_more(situation)
        return Band(number, "nobody_able", text, tuple(apart))
    load = f"{tasks} tasks for {supply} workers"
    if number > supply:
        return Band(number, "scale_up", f"{load}: at most {upper:g} for each")
    if number < supply:
        return Band(number, "scale_down", f"{load}: at least {lower:g} for each")
    return Band(number, "within", f"{load}: between {lower:g} and {upper:g} for each, or as few as can be")
