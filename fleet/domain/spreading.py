"""How claims spread over the workers of a pool: fair shares, and who matches a task's preferences best. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from fleet.domain.lanes import ASSIGNED_TIER, Lane, Offer
from fleet.domain.task import SHARED_BATCH

PULL, EVEN_LOAD, CAPABILITY = "pull", "even_load", "capability"
ALLOCATIONS = (PULL, EVEN_LOAD, CAPABILITY)
DEFAULT_PREFER_WAIT = 2.0

BY_RANK_EVERY = 10
"""Of so many claims of a worker one goes by rank alone: what it matches badly is not overtaken for ever."""


class Allocation(NamedTuple):
    """What a pool says of how its claims spread.

    Attributes:
        allocate: `pull`, `even_load` or `capability`.
        prefer_wait: seconds for which a task is left to somebody else at most.
    """

    allocate: str = PULL
    prefer_wait: float = DEFAULT_PREFER_WAIT


PULLED = Allocation()


@dataclass(frozen=True, slots=True)
class Spreading:
    """Who claims, as far as the spreading of claims is about it; of a pool that only pulls there is none.

    Attributes:
        allocation: what the pool says.
        pool: the pool.
        capabilities: what the claimant offers.
        by_rank: whether this claim goes by rank alone, whatever matches better.
    """

    allocation: Allocation
    pool: str
    capabilities: Mapping[str, float] = field(default_factory=dict)
    by_rank: bool = False

    @property
    def goes_by_capability(self) -> bool:
        """Whether tasks are chosen by how well the claimant matches them."""
        return self.allocation.allocate == CAPABILITY


def spreading_of(allocation: Allocation, pool: str, capabilities: Mapping[str, float]) -> Spreading | None:
    """Return how a claimant of this pool spreads its claims; None where it just takes what is next."""
    return None if allocation.allocate == PULL else Spreading(allocation, pool, capabilities)


class Load(NamedTuple):
    """What a worker holds, and how much it could hold."""

    held: int
    capacity: int

    def up_to(self, level: int) -> int:
        """Return how many more tasks bring this worker to a level, or to its capacity."""
        return max(0, min(level, self.capacity) - self.held)


def capacity_of(slots: int) -> int:
    """Return how many tasks a worker can hold: what it executes at a time, or a batch that it executes one by one."""
    return slots if slots > 1 else SHARED_BATCH


def level(claimable: int, loads: Sequence[Load]) -> int:
    """Return the lowest level up to which all together could take what is claimable, as water fills a vessel.

    Where they have not room for all of it, it is the level at which all are full.
    """
    low, high = 0, max((load.capacity for load in loads), default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(load.up_to(middle) for load in loads) >= claimable:
            high = middle
        else:
            low = middle + 1
    return low


def share(claimable: int, own: Load, others: Sequence[Load]) -> int:
    """Return how many more tasks a worker may take, so that all who take the same tasks come to hold equally many.

    Args:
        claimable: tasks that any of them could take now.
        own: the worker's load.
        others: the loads of the other workers of equal offer.
    """
    return own.up_to(level(claimable, (own, *others)))


def enough(limit: int, own: Load, others: Iterable[Load]) -> int:
    """Return how many claimable tasks there must be for a share of `limit`: to count further says nothing new."""
    target = own.held + limit
    return sum(load.up_to(target) for load in (own, *others))


def match(capabilities: Mapping[str, float], prefers: Mapping[str, float]) -> float:
    """Return how well an offer meets preferences, from 0 to 1: the mean of what is met of each; 1 where there are none.

    More than what is preferred is no better than just that.
    """
    met = [min(1.0, capabilities.get(name, 0) / wanted) if wanted > 0 else 1.0 for name, wanted in prefers.items()]
    return sum(met) / len(met) if met else 1.0


class Candidate(NamedTuple):
    """A claimable task, as one worker sees it.

    Attributes:
        task_id: the task.
        lane_id: its lane.
        tier: the lane's tier in this claim.
        rank: its place, before id.
        priority: its priority; where the fleet's ageing is on, rank mixes priorities.
        waited: seconds since it became available.
    """

    task_id: int
    lane_id: int
    tier: int
    rank: int
    priority: int
    waited: float


def in_order(
    candidates: Iterable[Candidate], preferring: Mapping[int, Lane], capabilities: Mapping[str, float]
) -> list[Candidate]:
    """Return candidates in the order in which a worker with these capabilities takes them.

    By tier and rank as ever; among neighbours of one priority those whose preferences it meets come first, the better
    met before the less, then those that prefer nothing, then those of whose preferences it meets nothing.

    Args:
        candidates: tasks in any order.
        preferring: the lanes that prefer something, by id.
        capabilities: what the worker offers.
    """

    def appeal(one: Candidate) -> tuple[float, bool, int, int]:
        lane = preferring.get(one.lane_id)
        met = match(capabilities, lane.prefers) if lane else 0.0
        return -met, lane is not None, one.rank, one.task_id

    by_rank = sorted(candidates, key=lambda one: (one.tier, one.rank, one.task_id))
    runs = groupby(by_rank, key=lambda one: (one.tier, one.priority))
    return [one for _, run in runs for one in sorted(run, key=appeal)]


class Idle(NamedTuple):
    """Workers that could begin something at once.

    Attributes:
        offer: what one of them can take.
        free: how many tasks it could begin.
    """

    offer: Offer
    free: int


class Choice(NamedTuple):
    """What a worker takes of its candidates.

    Attributes:
        taken: those that it takes, in order.
        left_for: seconds until the first of those that it leaves to others is left to them no longer; None where it
            leaves nothing.
    """

    taken: tuple[Candidate, ...]
    left_for: float | None = None


def chosen(
    ordered: Sequence[Candidate],
    preferring: Mapping[int, Lane],
    capabilities: Mapping[str, float],
    idle: Iterable[Idle],
    prefer_wait: float,
) -> Choice:
    """Return what a worker takes: what an idle worker matches better is left to that one, for a while.

    Each idle worker is left no more than it could begin, so that others take the rest at once. What is assigned to the
    worker itself is never left.

    Args:
        ordered: the candidates, in the order in which it would take them.
        preferring: the lanes that prefer something, by id.
        capabilities: what the worker offers.
        idle: who is idle.
        prefer_wait: seconds, counted from when a task became available, for which it is left at most.
    """
    free = [_Room(one.offer, one.free) for one in idle]
    taken: list[Candidate] = []
    left_for: float | None = None
    for one in ordered:
        lane, still = preferring.get(one.lane_id), prefer_wait - one.waited
        if lane is None or still <= 0 or one.tier == ASSIGNED_TIER or not _leave(lane, capabilities, free):
            taken.append(one)
        else:
            left_for = still if left_for is None else min(left_for, still)
    return Choice(tuple(taken), left_for)


@dataclass(slots=True)
class _Room:
    offer: Offer
    free: int


def _leave(lane: Lane, capabilities: Mapping[str, float], rooms: Iterable[_Room]) -> bool:
    """Leave a task to the idle worker that matches it best, if that is better than this one does."""
    best, best_match = None, match(capabilities, lane.prefers)
    for room in rooms:
        found = match(room.offer.capabilities, lane.prefers)
        if room.free > 0 and found > best_match and room.offer.serves(lane):
            best, best_match = room, found
    if best is None:
        return False
    best.free -= 1
    return True
