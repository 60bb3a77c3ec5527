"""The tasks of a pool's past, to be run again: which of them count, and how long each takes. Pure."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from fleet.domain.demand import Work
from fleet.domain.history import Came
from fleet.domain.lanes import capability_key, satisfies
from fleet.domain.policies.viewing import situation_of
from fleet.domain.supply import supply_of
from fleet.errors import NotFound, UsageError
from fleet.scaler.past import Past
from fleet.simulation import Kind, Place, Tasks
from fleet.simulation.loads import MOST_KINDS, MOST_TASKS

UNKNOWN_SECONDS = 1.0


def ours(past: Past) -> tuple[list[Came], list[str]]:
    """Return what came that counts for this pool, and what is not known of the rest.

    Whom a task counts for is judged by what pools take now.
    """
    lanes = {(each.lane.lane_id, each.lane.queue, each.lane.task): each.lane for each in past.history.came}
    works = {key: Work(lane.queue, lane.task, lane.requires, pending=1) for key, lane in lanes.items()}
    seen = replace(past.snapshot, work=tuple(works.values()))
    situation = situation_of(seen, supply_of(seen))
    if situation.is_untold:
        return list(past.history.came), ["nobody knows what this pool's workers take: every task counts"]
    served = {_key(work) for work in situation.demand}
    unserved = {_key(work) for work in situation.unserved}
    keys = {key: _key(work) for key, work in works.items()}
    ours, left = [], 0
    for each in past.history.came:
        key = keys[each.lane.lane_id, each.lane.queue, each.lane.task]
        if key in served:
            ours.append(each)
        elif key in unserved:
            left += each.count
    return ours, [f"{left} tasks are left out: nothing in this pool can serve them now"] if left else []


def _key(work: Work) -> tuple[str, str, str]:
    return work.queue, work.task, capability_key(work.requires)


def servable(came: list[Came], places: Sequence[Place], unknown: list[str]) -> list[Came]:
    """Return what workers that are started could serve: hand-started ones are not simulated."""
    able = [each for each in came if any(satisfies(place.offers, each.lane.requires) for place in places)]
    left = sum(each.count for each in came) - sum(each.count for each in able)
    if left:
        unknown.append(f"{left} tasks are left out: only workers that somebody starts by hand could serve them")
    if not able:
        raise NotFound("no adapter starts workers that could serve what came: there is nothing to run again")
    return able


def tasks_of(came: Sequence[Came], begin: datetime, unknown: list[str]) -> Tasks:
    """Return the tasks of all that came, in the order of time."""
    number = sum(each.count for each in came)
    if number > MOST_TASKS:
        raise UsageError(f"{number:,} tasks came, and {MOST_TASKS:,} at most are run again: give a shorter --since")
    kinds = _kinds(came)
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds.values()))}
    means = _means(came, kinds)
    guessed = 0
    rows = []
    for each in came:
        kind = kinds[each.lane.queue, each.lane.task, capability_key(each.lane.requires)]
        seconds = means[kind] if each.seconds is None else each.seconds
        guessed += each.count if each.seconds is None else 0
        at = max(0.0, (each.at - begin).total_seconds())
        rows += [(at + each.span * part / each.count, places[kind], seconds) for part in range(each.count)]
    if guessed:
        unknown.append(f"how long {guessed} tasks take that have not ended: they count with the mean of their kind")
    rows.sort()
    return Tasks(
        tuple(Kind(task, dict(needs), queue) for queue, task, needs in places),
        array("d", [row[0] for row in rows]),
        array("B", [row[1] for row in rows]),
        array("d", [row[2] for row in rows]),
    )


_KindKey = tuple[str, str, tuple[tuple[str, float], ...]]


def _kinds(came: Sequence[Came]) -> Mapping[tuple[str, str, str], _KindKey]:
    """Return what each lane counts as: of very many kinds, those that need the same are one."""
    found = {
        (each.lane.queue, each.lane.task, capability_key(each.lane.requires)): (
            each.lane.queue,
            each.lane.task,
            tuple(sorted(each.lane.requires.items())),
        )
        for each in came
    }
    if len(set(found.values())) <= MOST_KINDS:
        return found
    return {key: ("default", "task", needs) for key, (_, _, needs) in found.items()}


def _means(came: Sequence[Came], kinds: Mapping[tuple[str, str, str], _KindKey]) -> Mapping[_KindKey, float]:
    sums: defaultdict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in came:
        if each.seconds is not None:
            kind = kinds[each.lane.queue, each.lane.task, capability_key(each.lane.requires)]
            for key in (kind, None):
                sums[key][0] += each.seconds * each.count
                sums[key][1] += each.count
    total = sums[None][0] / sums[None][1] if sums[None][1] else UNKNOWN_SECONDS
    return {kind: sums[kind][0] / sums[kind][1] if sums[kind][1] else total for kind in kinds.values()}
