"""`no`: leave the fleet as it is."""

from __future__ import annotations

from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.situation import Situation
from fleet.domain.reasons import Reason


def advise(situation: Situation) -> Advice:
    """Return the present supply."""
    return Advice(situation.supply, Reason("no_policy", "no policy: the number of workers is left as it is"))


POLICY = Policy("no", advise, is_elastic=False, help="leave the number of workers as it is")
