"""`fixed`: a number that a person gave (`--target-workers`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import MOST_WORKERS, Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.reasons import Reason
from fleet.errors import UsageError

NAME = "fixed"
SETTING = "target_workers"
SETTINGS = (Setting(SETTING, Kind.INTEGER, None, "how many workers there should be", 0, MOST_WORKERS, required=True),)


def advise(situation: Situation) -> Advice:
    """Return the setting `target_workers`; raise UsageError when a row holds something else than a number."""
    number = target(situation.settings)
    if number is None:
        raise UsageError(f"pool {situation.pool}: {unreadable(situation.settings)}")
    return Advice(number, Reason("fixed", f"fixed: target {number}"))


def target(settings: Mapping[str, Any]) -> int | None:
    """Return the number of workers in a pool's settings; None when what stands there is none."""
    value = settings.get(SETTING, -1)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole and not isinstance(value, bool) and value >= 0 else None


def unreadable(settings: Mapping[str, Any]) -> str:
    """Return what is wrong with a setting that is missing or no number, and what to do."""
    if settings.get(SETTING) is None:
        return f"its setting {SETTING} is missing: set it with fleet-scaler --target-workers N"
    value = f"{settings.get(SETTING)!r:.50}"
    return f"its setting {SETTING} is {value}, which is no number: set it with fleet-scaler --target-workers N"


POLICY = Policy("fixed", advise, SETTINGS, is_elastic=False, help="keep target_workers workers")
