"""Clamps: what bounds every policy's advice, in one place and in one order. Pure.

1. spare capacity on top of what the work needs (elastic policies);
2. the minimum, then the maximum, which prevails (both by time of day where a schedule says so);
3. before shrinking, the stabilization window and the cooldown; before growing, the cooldown (elastic policies).

The third step only ever moves the number towards the present one, and not out of the second's bounds. How many may be
launched in one pass, and what adapters can take, bounds what is done about the number (`placement`), not the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.bounds import Bounds, read_schedule
from fleet.domain.demand import PastAdvice
from fleet.domain.policies.setting import Kind, Setting
from fleet.domain.reasons import Reason
from fleet.domain.spare import read_spare, with_spare

DAY = 86_400

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "spare", Kind.OWN, 0, "workers beyond what the work needs: a number, or a share such as 10%", read=read_spare
    ),
    Setting("scale_up_cooldown", Kind.DURATION, 0, "after workers were started, how long none are", 0, DAY),
    Setting("scale_down_cooldown", Kind.DURATION, 0, "after workers were taken away, how long none are", 0, DAY),
    Setting(
        "stabilization_window",
        Kind.DURATION,
        60,
        "workers go only down to the most that were advised within this time",
        0,
        DAY,
    ),
    Setting(
        "schedule",
        Kind.OWN,
        None,
        "minimum and maximum by time of day: mon-fri 08:00-20:00 Europe/Berlin min=4 max=40; sat min=1",
        read=read_schedule,
    ),
)
"""The settings of clamps that have no column of their own in `scheduler`."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a pool has behind it.

    Attributes:
        advices: the ledger as far back as `reach` says.
        scaled_up_at, scaled_down_at: when workers were last started, or taken away.
    """

    advices: Sequence[PastAdvice] = ()
    scaled_up_at: datetime | None = None
    scaled_down_at: datetime | None = None


def reach(settings: Mapping[str, Any]) -> float:
    """Return how many seconds of the ledger the clamps need, given a pool's settings in force; a day at most."""
    return min(float(DAY), float(settings.get("stabilization_window") or 0))


def clamped(
    advised: int, supply: int, bounds: Bounds, settings: Mapping[str, Any], past: Past, now: datetime, *, elastic: bool
) -> tuple[int, list[Reason]]:
    """Return how many workers there should be, and a reason for each clamp that changed the number.

    Args:
        advised: what the policy said.
        supply: how many there are, or will be.
        bounds: minimum and maximum in force.
        settings: the pool's settings in force.
        past: what was advised and done before.
        now: the time.
        elastic: whether the policy follows the work; what a person said is neither supplemented nor held back.
    """
    reasons: list[Reason] = []
    number = _with_spare(advised, settings, reasons) if elastic else advised
    number = _within(number, bounds, reasons)
    if not elastic:
        return number, reasons
    if number < supply:
        number = _stabilized(number, supply, bounds, settings, past, now, reasons)
    if number < supply:
        return _cooled(
            number, _inside(supply, bounds), "scale_down", past.scaled_down_at, settings, now, reasons
        ), reasons
    if number > supply:
        return _cooled(number, _inside(supply, bounds), "scale_up", past.scaled_up_at, settings, now, reasons), reasons
    return number, reasons


def _with_spare(advised: int, settings: Mapping[str, Any], reasons: list[Reason]) -> int:
    number = with_spare(advised, settings["spare"])
    if number > advised:
        reasons.append(
            Reason("spare", f"{number - advised} more to have capacity to spare (spare={settings['spare']})")
        )
    return number


def _within(number: int, bounds: Bounds, reasons: list[Reason]) -> int:
    rule = "" if bounds.rule is None else f" (schedule: {bounds.rule})"
    if number < bounds.least:
        text = f"raised from {number} to the minimum of {bounds.least}{rule}"
        reasons.append(Reason("raised_to_minimum", text))
        return bounds.least
    if bounds.most is not None and number > bounds.most:
        text = f"lowered from {number} to the maximum of {bounds.most}{rule}"
        reasons.append(Reason("lowered_to_maximum", text))
        return bounds.most
    return number


def _inside(number: int, bounds: Bounds) -> int:
    return _within(number, bounds, [])


def _stabilized(
    number: int,
    supply: int,
    bounds: Bounds,
    settings: Mapping[str, Any],
    past: Past,
    now: datetime,
    reasons: list[Reason],
) -> int:
    """Return the number, or the largest that was advised within the window, as Kubernetes' autoscaler does."""
    window = settings["stabilization_window"]
    start = now - timedelta(seconds=window)
    # What stands in the future was written before the clock was set back.
    within = [one.advised for one in past.advices if one.until > start and one.since <= now]
    largest = max((with_spare(advised, settings["spare"]) for advised in within), default=0)
    held = min(supply, _inside(largest, bounds))
    if held <= number:
        return number
    text = f"held at {held}: that many were advised within the last {window:g} s (stabilization_window)"
    reasons.append(Reason("stabilization_window", text))
    return held


def _cooled(
    number: int,
    present: int,
    direction: str,
    since: datetime | None,
    settings: Mapping[str, Any],
    now: datetime,
    reasons: list[Reason],
) -> int:
    """Return the number, or the present one while the last change in this direction is not long enough ago."""
    name = f"{direction}_cooldown"
    end = None if since is None else since + timedelta(seconds=settings[name])
    if since is None or end is None or not since <= now < end or present == number:
        return number
    # No countdown in the reason: the ledger would take every pass for a new decision.
    reasons.append(Reason(name, f"held at {present} instead of {number} until {end:%H:%M:%S}Z ({name})"))
    return present
