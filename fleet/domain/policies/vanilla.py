"""`vanilla`: tasks for each worker, between a lower and an upper ratio."""

from __future__ import annotations

from fleet.domain.policies import ratio
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.situation import Situation
from fleet.domain.reasons import Reason

SETTINGS = ratio.settings(upper=10, lower=1)


def advise(situation: Situation) -> Advice:
    """Return the supply, moved as far as is needed for tasks / workers to lie between the two ratios."""
    band = ratio.banded(situation)
    return Advice(band.workers, Reason(band.code, f"vanilla: {band.text}"), requires=band.requires)


POLICY = Policy(
    "vanilla",
    advise,
    SETTINGS,
    help="tasks for each worker between lower_task_ratio and upper_task_ratio",
    check=ratio.check,
)
