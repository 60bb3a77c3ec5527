"""The lanes that a worker serves: learned as they come into being, and which of them there is room for."""

from __future__ import annotations

import random
from collections.abc import Mapping

from fleet.domain.lanes import Lane, LaneClaim, Offer, room_for, tiers
from fleet.storage.interfaces import WorkQueue


class LearnedLanes:
    """The lanes that a worker serves, learned as they come into being.

    Args:
        offer: what the worker can take.
        weighted: whether the order of queues is drawn anew for every claim.
    """

    def __init__(self, offer: Offer, weighted: bool) -> None:
        self._offer = offer
        self._weighted = weighted
        self._served: list[Lane] = []
        self._newest = 0
        self._tiers: tuple[LaneClaim, ...] = ()
        self._requires: dict[int, Mapping[str, float]] = {}

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the lanes served."""
        return tuple(lane.lane_id for lane in self._served)

    def learn(self, queue: WorkQueue, newest: int | None = None) -> bool:
        """Read the lanes made since the last time; return whether there are any.

        Args:
            queue: where they are.
            newest: the newest lane's id, if known: nothing is read when it is not new.
        """
        if newest is not None and newest <= self._newest:
            return False
        new = queue.lanes(self._newest)
        if new:
            self._newest = new[-1].lane_id
            served = [lane for lane in new if self._offer.serves(lane)]
            self._served += served
            self._requires.update((lane.lane_id, lane.requires) for lane in served)
            self._tiers = tiers(self._served, self._offer, random.random)
        return bool(new)

    def requires(self, lane_id: int) -> Mapping[str, float]:
        """Return what a lane's tasks need; nothing for a lane that is not served."""
        return self._requires.get(lane_id, {})

    @property
    def has_preferring(self) -> bool:
        """Whether tasks of some lane wait a moment for workers that these are not."""
        return any(waits for _, _, waits in self._tiers)

    def to_claim(self) -> tuple[LaneClaim, ...]:
        """Return what the next claim names."""
        if self._weighted:
            self._tiers = tiers(self._served, self._offer, random.random)
        return self._tiers

    def to_claim_within(self, left: Mapping[str, float], limit: int) -> tuple[tuple[LaneClaim, ...], int]:
        """Return what the next claim names, and how many tasks it may bring.

        Args:
            left: what is left of the offer: lanes that need more are left out, and no mixture of tasks needs more.
            limit: at most so many.
        """
        lanes = tuple(lane for lane in self.to_claim() if room_for(self._requires[lane[0]], left) != 0)
        most: dict[str, float] = {}
        for lane in lanes:
            for name, quantity in self._requires[lane[0]].items():
                most[name] = max(most.get(name, 0.0), quantity)
        room = room_for(most, left)
        return lanes, limit if room is None else min(limit, room)
