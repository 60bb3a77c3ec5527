"""Lanes: what a worker can claim. A lane is the interned (queue, handler, capability set, assigned worker) of tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fleet.errors import UsageError

MAX_CAPABILITY_SETS = 1_000

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,99}")


LaneClaim = tuple[int, int, int]
"""(lane id, tier, 1 when the lane prefers what the worker does not offer): what a claim names."""

ASSIGNED_TIER = -1
"""The tier of what is assigned to one worker: it claims that next."""

PREFERENCE_WAIT = 5.0
"""Seconds for which a task waits for a worker that offers what it prefers; then any takes it."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of `claim_lane`.

    Attributes:
        lane_id: rises with every new lane, so that workers learn new ones by the maximum.
        queue: the queue.
        task: the handler's name.
        requires: what a worker must offer.
        assigned_worker: the only worker that may claim, or "" for any.
        prefers: what a worker should offer.
    """

    lane_id: int
    queue: str
    task: str
    requires: Mapping[str, float]
    assigned_worker: str = ""
    prefers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker can take.

    Attributes:
        worker_id: its name, for lanes assigned to it.
        handlers: names of the handlers that it has.
        queues: queues that it serves, in order, with weights (0 = strict order); empty means all by rank.
        capabilities: what it offers, by name, with quantities.
    """

    worker_id: str
    handlers: frozenset[str]
    queues: tuple[tuple[str, float], ...]
    capabilities: Mapping[str, float]

    def serves(self, lane: Lane) -> bool:
        """Return whether this worker may claim tasks of `lane`."""
        return (
            lane.task in self.handlers
            and (not self.queues or any(name == lane.queue for name, _ in self.queues))
            and lane.assigned_worker in ("", self.worker_id)
            and satisfies(self.capabilities, lane.requires)
        )


def satisfies(offer: Mapping[str, float], requires: Mapping[str, float]) -> bool:
    """Return whether `offer` has at least the required quantity of everything in `requires`."""
    return all(offer.get(name, 0) >= quantity for name, quantity in requires.items())


def room_for(requires: Mapping[str, float], left: Mapping[str, float]) -> int | None:
    """Return how many tasks that need `requires` fit into what is left of an offer; None when they need nothing."""
    # Ten tenths are a whole, whatever the arithmetic of floats says.
    rooms = (int(left.get(name, 0) / quantity + 1e-9) for name, quantity in requires.items() if quantity)
    return min(rooms, default=None)


def tiers(lanes: Iterable[Lane], offer: Offer, random: Callable[[], float]) -> tuple[LaneClaim, ...]:
    """Return what a claim names of every lane that `offer` serves: lower tiers are claimed from first.

    Without queues every lane is in tier 0, so that rank alone decides. Several queues are tiers in the order given;
    queues with weights are put in a random order in which a queue comes first in proportion to its weight
    (Efraimidis & Spirakis, "Weighted random sampling with a reservoir", 2006). What is assigned to this very worker
    comes before all else, whatever it prefers.
    """
    order = _queue_order(offer.queues, random)
    return tuple(
        (lane.lane_id, ASSIGNED_TIER, 0)
        if lane.assigned_worker
        else (lane.lane_id, order.get(lane.queue, 0), int(not satisfies(offer.capabilities, lane.prefers)))
        for lane in lanes
        if offer.serves(lane)
    )


def _queue_order(queues: tuple[tuple[str, float], ...], random: Callable[[], float]) -> dict[str, int]:
    names = [name for name, _ in queues]
    if any(weight > 0 for _, weight in queues):
        keys = {name: (1.0 - random()) ** (1.0 / weight) if weight > 0 else 0.0 for name, weight in queues}
        names.sort(key=lambda name: keys[name], reverse=True)
    return {name: position for position, name in enumerate(names)}


def check_name(kind: str, name: str) -> str:
    """Return `name`, or raise UsageError when it cannot name a queue, handler, pool, worker or capability."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{kind} {name!r}: use 1 to 100 of the characters A-Z a-z 0-9 _ . : / -, not starting with a sign"
        )
    return name


def check_capability(name: str) -> str:
    """Return `name`, or raise UsageError when it cannot name a capability."""
    if name == _PREFERS:
        raise UsageError("capability 'prefers': this word is taken: use another name")
    return check_name("capability", name)


def parse_capabilities(text: str) -> dict[str, float]:
    """Return what `gpu,mem=16` says, as quantities by name; a name alone counts 1.

    Raises:
        UsageError: a bad name, or a quantity that is not a positive number.
    """
    offers: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, quantity = part.partition("=")
        offers[check_capability(name.strip())] = quantity_of(name, quantity if separator else "1")
    return offers


def named(capabilities: Mapping[str, float]) -> str:
    """Return quantities as `parse_capabilities` reads them, by name."""
    return ",".join(name if much == 1 else f"{name}={much:.15g}" for name, much in sorted(capabilities.items()))


def quantity_of(name: str, value: object) -> float:
    """Return a capability's quantity, an int where it is whole; raise UsageError when it is not a positive number."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever a person or a row gave
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < 1e15 or isinstance(value, bool):
        raise UsageError(f"capability {name}={value!r}: the quantity must be a positive number")
    return int(number) if number.is_integer() else number


_PREFERS = "prefers"


def capability_key(requires: Mapping[str, float], prefers: Mapping[str, float] | None = None) -> str:
    """Return the canonical text of a capability set: equal sets have equal keys.

    Preferences stand in it as an object under `prefers`, which no capability may be called.
    """
    value = {**requires, **({_PREFERS: dict(prefers)} if prefers else {})}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def requires_of(key: str) -> dict[str, float]:
    """Return the capability set of a canonical key; an unreadable one requires what nobody offers."""
    try:
        value = json.loads(key)
        return {str(name): float(quantity) for name, quantity in value.items() if not isinstance(quantity, dict)}
    except (ValueError, AttributeError, TypeError):
        return {"unreadable-requires": float("inf")}


def prefers_of(key: str) -> dict[str, float]:
    """Return the preferences of a canonical key; unreadable ones are none."""
    try:
        return {str(name): float(quantity) for name, quantity in json.loads(key).get(_PREFERS, {}).items()}
    except (ValueError, AttributeError, TypeError):
        return {}
