"""What is known of a pool's past, and what came of it in truth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from fleet.domain.decision import Decision
from fleet.domain.group import GroupRecord
from fleet.domain.history import Came, History
from fleet.domain.snapshot import PoolSettings, Snapshot

HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a pool's past.

    Attributes:
        snapshot: the pool as a pass sees it now, its work and all pools included.
        settings: its settings in force.
        history: what came to the queue.
        ledger: its decisions, oldest first.
        groups: its groups, ended ones too.
    """

    snapshot: Snapshot
    settings: PoolSettings
    history: History
    ledger: tuple[Decision, ...] = ()
    groups: tuple[GroupRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened, as far as it is known; None where it is not.

    Attributes:
        tasks: tasks that came for this pool.
        mean_wait, p95_wait: seconds until they began.
        worker_hours: of workers there were or were ordered, by the ledger.
        launches: workers that were ordered.
        flaps: changes of direction.
    """

    tasks: int
    mean_wait: float | None
    p95_wait: float | None
    worker_hours: float | None
    launches: int | None
    flaps: int | None


def happened(past: Past, came: Sequence[Came], begin: datetime) -> Happened:
    """Return what happened since `begin`, given what came for this pool."""
    begun = [each for each in came if each.begun]
    number = sum(each.begun for each in begun)
    ledger = [one for one in past.ledger if one.last_seen_at >= begin]
    waits = sorted((each.waited / each.begun, each.begun) for each in begun)
    return Happened(
        tasks=sum(each.count for each in came),
        mean_wait=sum(each.waited for each in begun) / number if number else None,
        p95_wait=_weighted(waits, 0.95, number) if number else None,
        worker_hours=_worker_hours(ledger, begin, past.history.until) if ledger else None,
        launches=sum(_started(one) for one in ledger) if ledger else None,
        flaps=_flaps(ledger) if ledger else None,
    )


def _weighted(ordered: Sequence[tuple[float, int]], share: float, number: int) -> float:
    """Return the value that `share` of `number` sorted values do not exceed."""
    seen = 0
    for value, count in ordered:
        seen += count
        if seen >= share * number - 1e-9:
            return value
    return ordered[-1][0]


def _worker_hours(ledger: Sequence[Decision], begin: datetime, until: datetime) -> float:
    """Return what workers there were, each decision's until the next: ordered, here, or draining."""
    ends = [*(one.created_at for one in ledger[1:]), until]
    seconds = 0.0
    for one, end in zip(ledger, ends, strict=True):
        lasted = (min(end, until) - max(one.created_at, begin)).total_seconds()
        seconds += (one.supply + one.draining + _started(one)) * max(0.0, lasted)
    return seconds / HOUR


def _started(decision: Decision) -> int:
    """Return how many workers a decision ordered."""
    starts = decision.actions.get("start")
    found = starts if isinstance(starts, list) else []
    return sum(int(each[1]) for each in found if isinstance(each, list) and len(each) > 1 and isinstance(each[1], int))


def _flaps(ledger: Sequence[Decision]) -> int:
    directions = [each for one in ledger if (each := _direction(one))]
    return sum(one != other for one, other in pairwise(directions))


def _direction(decision: Decision) -> int:
    if _started(decision):
        return 1
    return -1 if any(decision.actions.get(name) for name in ("drain", "cancel", "resize")) else 0
