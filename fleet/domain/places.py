"""Adapters as places for workers: what each can take and give, and what is ordered from it in one pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet.domain.adapters import AdapterStatus, Limits
from fleet.domain.lanes import capability_key, satisfies

REMEMBERED = timedelta(minutes=10)
"""For how long after its pause is over an adapter that refused is asked after its equals."""


@dataclass(frozen=True, slots=True)
class AdapterState:
    """What a pass needs to know of an adapter before it orders from it.

    Attributes:
        adapter_id: its id.
        limits: what it can take.
        groups: groups of any pool that it carries now.
        resizes: whether a group there may have any size; else it gets whole groups.
        priority: who is asked first: the higher.
        status: whether anything may be ordered from it.
        reason: why not.
        backoff_until: before this time nothing is ordered, after orders or launches that failed, or for want of room.
        consecutive_failures: what has failed since something succeeded.
        on_request: what its workers offer where a launch asks for it, each up to so much.
    """

    adapter_id: str
    limits: Limits = field(default_factory=Limits)
    groups: int = 0
    resizes: bool = True
    priority: int = 0
    status: AdapterStatus = AdapterStatus.ACTIVE
    reason: str | None = None
    backoff_until: datetime | None = None
    consecutive_failures: int = 0
    on_request: Mapping[str, float] = field(default_factory=dict)

    @property
    def room(self) -> int | None:
        """How many more groups it can carry; None for any number."""
        most = self.limits.max_worker_groups
        return None if most is None else max(0, most - self.groups)

    def refused_lately(self, now: datetime) -> bool:
        """Return whether it had no room, or failed, within `REMEMBERED` and has had no success since."""
        return self.backoff_until is not None and self.backoff_until > now - REMEMBERED


@dataclass
class _Order:
    """Workers ordered from one place that must offer the same beyond what it gives by itself."""

    capabilities: Mapping[str, float]
    workers: int = 0


@dataclass
class Place:
    """An adapter, and what one pass orders from it.

    Attributes:
        adapter: the adapter.
        offered: what the pool's workers offer wherever they are started.
        share: how many more of the pool's workers it may carry; None for any number.
        last_offers: what its workers are taken to offer where it does not say.
    """

    adapter: AdapterState
    offered: Mapping[str, float]
    share: int | None = None
    last_offers: Sequence[Mapping[str, float]] = ()
    _orders: dict[str, _Order] = field(default_factory=dict)

    def can_give(self, requires: Mapping[str, float]) -> bool:
        """Return whether workers started here offer what is required, by themselves or on request."""
        return self._asked(requires) is not None

    def order(self, requires: Mapping[str, float], number: int) -> int:
        """Order up to `number` workers that offer what is required; return how many of them there is room for."""
        asked = self._asked(requires) or {}
        key = capability_key(asked)
        order = self._orders.setdefault(key, _Order(asked))
        room = self._room(order)
        taken = number if room is None else min(number, room)
        order.workers += taken
        if not order.workers:
            del self._orders[key]
        return taken

    def absorb(self, requires: Mapping[str, float], number: int) -> int:
        """Count up to `number` workers that come with whole groups ordered for others; return how many."""
        taken = 0
        for order in self._orders.values():
            if satisfies({**self._gives(), **order.capabilities}, requires):
                more = min(number - taken, self._spare(order))
                order.workers += more
                taken += more
        return taken

    def launches(self) -> list[tuple[str, int, Mapping[str, float]]]:
        """Return the groups to start: the adapter, the size, and what to ask for."""
        return [
            (self.adapter.adapter_id, size, order.capabilities)
            for order in self._orders.values()
            for size in self._sizes(order)
        ]

    def _gives(self) -> dict[str, float]:
        return {**(self.adapter.limits.base_capabilities or {}), **self.offered}

    def _asked(self, requires: Mapping[str, float]) -> Mapping[str, float] | None:
        """Return what has to be asked for; None where this place cannot give it."""
        gives = self._gives()
        asked = {name: quantity for name, quantity in requires.items() if gives.get(name, 0) < quantity}
        if satisfies(self.adapter.on_request, asked):
            return asked
        unknown = self.adapter.limits.base_capabilities is None
        return {} if unknown and any(satisfies(one, requires) for one in self.last_offers) else None

    def _sizes(self, order: _Order) -> list[int]:
        largest = self.adapter.limits.workers_per_group
        if largest is None:
            return [order.workers]
        whole, rest = divmod(order.workers, largest)
        return [largest] * whole + ([rest if self.adapter.resizes else largest] if rest else [])

    def _spare(self, order: _Order) -> int:
        return sum(self._sizes(order)) - order.workers

    def _room(self, order: _Order) -> int | None:
        """Return how many more workers there is room for, with what is asked for in this order."""
        largest, rooms = self.adapter.limits.workers_per_group, list[int]()
        coming = [size for each in self._orders.values() if each.workers for size in self._sizes(each)]
        groups, workers = self._free_groups(len(coming)), sum(coming)
        begun = order.workers > 0
        if largest is None:
            if groups == 0 and not begun:
                return 0
        else:
            begun_group = -order.workers % largest
            if groups is not None:
                rooms.append(begun_group + groups * largest)
        if self.share is not None:
            left = self.share - workers
            if largest is not None and not self.adapter.resizes:
                left = -order.workers % largest + max(0, left) // largest * largest
            rooms.append(max(0, left))
        return min(rooms, default=None)

    def _free_groups(self, coming: int) -> int | None:
        room = self.adapter.room
        return None if room is None else max(0, room - coming)
