"""What of the open tasks is no demand for a pool, and why, in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fleet.domain.demand import Work
from fleet.domain.policies.situation import Situation
from fleet.domain.reasons import Reason

MOST = 3
"""Kinds of tasks that are named one by one; the others are summed up."""


def notes_of(situation: Situation) -> list[Reason]:
    """Return why open tasks do not count as they are: nobody knows, nobody can, another pool does."""
    notes = []
    if situation.is_untold and situation.demand:
        text = "nobody knows yet what this pool's workers take: one is started to tell"
        notes.append(Reason("untold", text))
    unserved: Counter[str] = Counter()
    for work in situation.unserved:
        unserved[_missing(situation, work)] += work.pending
    notes += _named("unsatisfiable", unserved)
    elsewhere: Counter[str] = Counter()
    for work, pool in situation.elsewhere:
        elsewhere[f"count for pool {pool}, which serves them too"] += work.pending + work.running
    return [*notes, *_named("counted_elsewhere", elsewhere)]


def _missing(situation: Situation, work: Work) -> str:
    """Return what tasks of this kind lack here."""
    offers = [offer.capabilities for offer in situation.offers]
    lacking = {
        name: quantity
        for name, quantity in work.requires.items()
        if all(offer.get(name, 0) < quantity for offer in offers)
    }
    if lacking:
        return f"need {in_words(lacking)}, which nothing in this pool offers"
    if work.requires:
        return f"need {in_words(work.requires)} and handler {work.task}, which nothing in this pool offers together"
    return f"need handler {work.task} in queue {work.queue}, which nothing in this pool offers"


def in_words(capabilities: Mapping[str, float]) -> str:
    """Return a capability set as people write it: `gpu, mem=16`."""
    return ", ".join(
        name if quantity == 1 else f"{name}={quantity:g}" for name, quantity in sorted(capabilities.items())
    )


def _named(code: str, numbers: Counter[str]) -> list[Reason]:
    found = sorted(((number, why) for why, number in numbers.items() if number), key=lambda each: (-each[0], each[1]))
    notes = [Reason(code, _sentence(number, why)) for number, why in found[:MOST]]
    rest = sum(number for number, _ in found[MOST:])
    return notes + ([Reason(code, f"{rest} more tasks for other such reasons")] if rest else [])


def _sentence(number: int, why: str) -> str:
    verb, _, rest = why.partition(" ")
    return f"{number} task{'' if number == 1 else 's'} {verb}{'s' if number == 1 else ''} {rest}"
