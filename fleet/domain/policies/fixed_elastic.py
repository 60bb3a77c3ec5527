"""`fixed_elastic`: a primary adapter up to its limit, then a secondary one, which shrinks first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.domain.policies import ratio, tiers
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.setting import MOST_WORKERS, Kind, Setting
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.waterfall import advise_over
from fleet.errors import UsageError

PRIMARY, SECONDARY = "primary", "secondary"


def _name(name: str, help: str) -> Setting:
    return Setting(name, Kind.OWN, None, help, read=tiers.read_name, required=True)


def _limit(name: str) -> Setting:
    text = f"how many workers the {name} adapter gets at most; none: as many as it takes"
    return Setting(f"{name}_limit", Kind.INTEGER, None, text, 0, MOST_WORKERS)


SETTINGS = (
    _name(PRIMARY, "the adapter that is filled first"),
    _limit(PRIMARY),
    _name(SECONDARY, "the adapter that gets what the primary one cannot take"),
    _limit(SECONDARY),
    *ratio.settings(upper=10, lower=1),
)


def advise(situation: Situation) -> Advice:
    """Return the number that keeps tasks / workers between the ratios, and which adapter carries how many of them."""
    given = situation.settings
    if given[PRIMARY] is None or given[SECONDARY] is None:
        raise UsageError(f"pool {situation.pool}: fixed_elastic needs two adapters: give primary=A and secondary=B")
    order = [(given[name], given[f"{name}_limit"]) for name in (PRIMARY, SECONDARY)]
    return advise_over(situation, order, "fixed_elastic")


def check(given: Mapping[str, Any]) -> None:
    """Raise UsageError where both adapters are one, or the band of ratios has no inside."""
    if given[PRIMARY] is not None and given[PRIMARY] == given[SECONDARY]:
        raise UsageError(f"primary and secondary are both {given[PRIMARY]}: give two adapters, or use waterfall")
    ratio.check(given)


POLICY = Policy(
    "fixed_elastic",
    advise,
    SETTINGS,
    help="as vanilla, on a primary adapter up to its limit, then on a secondary one",
    check=check,
)
