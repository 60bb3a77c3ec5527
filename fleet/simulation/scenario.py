"""What is simulated: tasks as they arrive, and places that start workers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleet.domain.adapters import Limits
from fleet.domain.lanes import satisfies
from fleet.simulation.chances import Chance, constant

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When virtual time begins, at midnight: schedules by time of day count from here."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Tasks of one lane.

    Attributes:
        task: the handler's name.
        requires: what a worker must offer.
        queue: the queue.
    """

    task: str = "task"
    requires: Mapping[str, float] = field(default_factory=dict)
    queue: str = "default"


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks, in the order in which they arrive.

    Attributes:
        kinds: the lanes.
        times: when each arrives, in seconds from the start.
        which: of what kind each is: a place in `kinds`.
        seconds: how long each takes.
    """

    kinds: tuple[Kind, ...]
    times: array[float]
    which: array[int]
    seconds: array[float]

    def __len__(self) -> int:
        return len(self.times)


def _nothing_special() -> Limits:
    return Limits(base_capabilities={})


@dataclass(frozen=True, slots=True)
class Place:
    """An adapter, and what happens to what is ordered from it.

    Attributes:
        name: its id.
        limits: what it says that it can take.
        resizes: whether a group there may have any size; else groups come and go whole.
        priority: who is asked first: the higher.
        capacity: groups for which there really is room; more is refused as "no room". None is no such bound.
        boot: seconds from the order until a group's workers are ready.
        failing: the share of launches that fail.
    """

    name: str = "native"
    limits: Limits = field(default_factory=_nothing_special)
    resizes: bool = True
    priority: int = 0
    capacity: int | None = None
    boot: Chance = field(default_factory=lambda: constant(1.0))
    failing: float = 0.0

    @property
    def offers(self) -> Mapping[str, float]:
        """What each of its workers offers."""
        return self.limits.base_capabilities or {}

    @property
    def starts_any(self) -> bool:
        """Whether it can start workers at all."""
        return self.capacity != 0 and self.limits.max_worker_groups != 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a policy is tried on.

    Attributes:
        tasks: the tasks.
        places: the adapters.
        every: seconds between two passes.
        until: seconds for which the fleet is watched at least; it goes on until all tasks are done.
        seed: of boot times and failures.
        worker_failures: how often a worker dies, per hour of its life.
        supply: workers that are here at the start.
        start: what time it is at the start.
    """

    tasks: Tasks
    places: tuple[Place, ...] = (Place(),)
    every: float = 1.0
    until: float = 0.0
    seed: int = 0
    worker_failures: float = 0.0
    supply: int = 0
    start: datetime = START

    def unservable(self) -> Sequence[tuple[Kind, int]]:
        """Return the kinds that no place starts workers for, with the number of their tasks."""
        offers = [place.offers for place in self.places if place.starts_any]
        return [
            (kind, self.tasks.which.count(number))
            for number, kind in enumerate(self.tasks.kinds)
            if not any(satisfies(offer, kind.requires) for offer in offers)
        ]
