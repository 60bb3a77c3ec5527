"""`capability`: tasks for each able worker, for every capability set by itself."""

from __future__ import annotations

from fleet.domain.policies import ratio
from fleet.domain.policies.advice import Advice
from fleet.domain.policies.entry import Policy
from fleet.domain.policies.left_out import in_words
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import Staffing, number_for, staffed
from fleet.domain.reasons import Reason

SETTINGS = ratio.settings(upper=5, lower=0.5)


def advise(situation: Situation) -> Advice:
    """Return how many workers there should be, so that each capability set has as many able ones as its tasks need.

    A set needs a worker for every `upper_task_ratio` tasks, and has too many where there are fewer than
    `lower_task_ratio` for each. Workers that are able to do several sets serve those together. As long as a task of a
    set is there, so is an able worker: the last one never goes, and which ones go is decided after which of them
    somebody waits for.
    """
    tasks = [work.pending + work.running for work in situation.demand]
    least = staffed(situation, [number / situation.settings[ratio.UPPER] for number in tasks])
    lower = situation.settings[ratio.LOWER]
    most = staffed(situation, [number / lower if lower else number * float(situation.supply) for number in tasks])
    number = number_for(situation, least, most)
    return Advice(number, Reason(_code(situation, number), _why(situation, number, least)), requires=least.requires)


def _code(situation: Situation, number: int) -> str:
    return "scale_up" if number > situation.supply else "scale_down" if number < situation.supply else "within"


def _why(situation: Situation, number: int, least: Staffing) -> str:
    load = f"capability: {situation.outstanding} tasks for {situation.supply} workers"
    if least.missing and number > situation.supply:
        sets = "; ".join(in_words(requires) for requires in least.requires if requires)
        return f"{load}: {least.missing} more {'with ' + sets + ' ' if sets else ''}needed"
    if least.missing:
        return f"{load}: {least.missing} others needed than are here"
    return f"{load}: {least.used} needed at least"


POLICY = Policy(
    "capability",
    advise,
    SETTINGS,
    help="tasks for each able worker between two ratios, for every capability set by itself",
    check=ratio.check,
)
