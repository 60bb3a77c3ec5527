"""Which adapters start the workers that are missing: pure, from what is known of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.adapters import AdapterStatus
from fleet.domain.lanes import capability_key, satisfies
from fleet.domain.places import AdapterState, Place
from fleet.domain.reasons import Reason


@dataclass(frozen=True, slots=True)
class StartGroup:
    """Start a group of `size` workers through `adapter_id`.

    Attributes:
        adapter_id: who starts it.
        size: how many workers.
        capabilities: what they must offer beyond what the pool's template and the place give by themselves.
    """

    adapter_id: str
    size: int
    capabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a policy advised of the places.

    Attributes:
        adapters: the only adapters that may be asked, in their order, each with how many of the pool's workers it may
            carry at most; None leaves it to capability and priority.
        carried: how many of the pool's workers each carries now.
        requires: what new workers must offer: one entry for each of the first, the last one for all further ones.
        last_offers: what workers are taken to offer of places that do not say.
    """

    adapters: Mapping[str, int | None] | None = None
    carried: Mapping[str, int] = field(default_factory=dict)
    requires: Sequence[Mapping[str, float]] = ()
    last_offers: Sequence[Mapping[str, float]] = ()

    def share(self, adapter_id: str) -> int | None:
        """Return how many more workers an adapter may carry; None for any number."""
        cap = None if self.adapters is None else self.adapters[adapter_id]
        return None if cap is None else max(0, cap - self.carried.get(adapter_id, 0))

    def needs(self, number: int) -> list[tuple[Mapping[str, float], int]]:
        """Return what so many new workers must offer, and how many of them, in order; nothing where nothing is said."""
        if not self.requires:
            return [({}, number)]
        counted: dict[str, tuple[Mapping[str, float], int]] = {}
        for requires in self.requires[:number]:
            key = capability_key(requires)
            counted[key] = requires, counted.get(key, (requires, 0))[1] + 1
        if number > len(self.requires):
            last = self.requires[-1]
            key = capability_key(last)
            counted[key] = last, counted[key][1] + number - len(self.requires)
        return list(counted.values())


NO_WISH = Wish()


def placed(
    missing: int,
    most: int,
    adapters: Sequence[AdapterState],
    wanted: Sequence[Mapping[str, float]],
    now: datetime,
    offered: Mapping[str, float] | None = None,
    wish: Wish = NO_WISH,
) -> tuple[tuple[StartGroup, ...], list[Reason]]:
    """Distribute missing workers over adapters, each as far as it has room.

    Adapters are asked in the order of the wish; without one the capable first, then by priority. Those that have lately
    refused or failed, and have had no success since, come after their equals: passes may be rarer than the pause after
    a refusal, and would ask the same full place again and again. Who cannot give what
    the wish requires gets none of those workers. An adapter that cannot shrink a group gets whole groups, rounded up,
    but not beyond its share.

    Args:
        missing: workers wanted and not there.
        most: launches of one pass at most; a whole group is not cut.
        adapters: those that may be ordered from.
        wanted: what tasks require that nobody serves now; who serves it comes first where the wish requires nothing.
        now: the time.
        offered: what the pool's workers offer wherever they are started; it prevails over what a place offers.
        wish: what the policy advised of the places.

    Returns:
        What to start, and why there is less of it than is missing.
    """
    if missing <= 0:
        return (), []
    reasons: list[Reason] = []
    places = [
        Place(adapter, offered or {}, wish.share(adapter.adapter_id), wish.last_offers)
        for adapter in adapters
        if wish.adapters is None or adapter.adapter_id in wish.adapters
    ]
    able = [place for place in places if _may_start(place.adapter, now, reasons)]
    able.sort(key=lambda place: _turn(place.adapter, wanted, offered or {}, wish, now))
    number = min(missing, most)
    if number < missing:
        text = f"{number} of {missing} launches now: that many in one pass at most"
        reasons.append(Reason("launches_per_cycle", text))
    needs, left = wish.needs(number), 0
    for requires, wanted_now in needs:
        if places and not any(place.can_give(requires) for place in places):
            text = f"no adapter can start workers that offer {_in_words(requires)}"
            reasons.append(Reason("no_capable_adapter", text))
            continue
        left += _ordered(able, requires, wanted_now)
    if left:
        reasons.append(_no_room(left, places, adapters))
    starts = tuple(StartGroup(*launch) for place in able for launch in place.launches())
    return _needed(starts, number) if len(needs) == 1 else starts, reasons


def _turn(
    adapter: AdapterState,
    wanted: Sequence[Mapping[str, float]],
    offered: Mapping[str, float],
    wish: Wish,
    now: datetime,
) -> tuple[int, bool, int, str]:
    refused = adapter.refused_lately(now)
    if wish.adapters is not None:
        return 0, refused, list(wish.adapters).index(adapter.adapter_id), ""
    served = 0 if wish.requires else _served(adapter, wanted, offered)
    return -served, refused, -adapter.priority, adapter.adapter_id


def _ordered(places: Sequence[Place], requires: Mapping[str, float], number: int) -> int:
    """Order workers that offer what is required; return how many find no place."""
    for place in places:
        number -= place.absorb(requires, number)
    for place in places:
        if number > 0 and place.can_give(requires):
            number -= place.order(requires, number)
    return number


def _no_room(left: int, places: Sequence[Place], adapters: Sequence[AdapterState]) -> Reason:
    if not adapters:
        return Reason("no_adapter", "there is no adapter")
    if not places:
        return Reason("no_adapter", "none of the adapters that the policy names is there")
    return Reason("no_room", f"{left} workers find no adapter with room")


def _in_words(requires: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={quantity:g}" for name, quantity in sorted(requires.items()))


def _needed(starts: Sequence[StartGroup], wanted: int) -> tuple[StartGroup, ...]:
    """Return the starts without those that a whole group, rounded up, makes needless."""
    needed, surplus = list(starts), sum(start.size for start in starts) - wanted
    for start in starts:
        if start.size <= surplus:
            needed.remove(start)
            surplus -= start.size
    return tuple(needed)


def _may_start(adapter: AdapterState, now: datetime, reasons: list[Reason]) -> bool:
    if adapter.status is AdapterStatus.PAUSED:
        why = f": {adapter.reason}" if adapter.reason else ""
        text = f"adapter {adapter.adapter_id} is paused{why} (fleet adapter resume {adapter.adapter_id})"
        reasons.append(Reason("adapter_paused", text))
        return False
    if adapter.backoff_until is not None and adapter.backoff_until > now:
        # No countdown in the reason: the ledger would take every pass for a new decision.
        after = f" after {adapter.consecutive_failures} failed launches (see fleet groups)"
        text = f"adapter {adapter.adapter_id} backs off until {adapter.backoff_until:%H:%M:%S}Z"
        reasons.append(
            Reason("adapter_backoff", text + (after if adapter.consecutive_failures else ": it had no room"))
        )
        return False
    if adapter.room == 0:
        reasons.append(Reason("adapter_full", f"adapter {adapter.adapter_id} is full: {adapter.groups} groups"))
        return False
    return True


def _served(adapter: AdapterState, wanted: Sequence[Mapping[str, float]], offered: Mapping[str, float]) -> int:
    """Return how many of the wanted requirements workers started by this adapter would meet."""
    offer = {**(adapter.limits.base_capabilities or {}), **offered}
    return sum(satisfies(offer, requires) for requires in wanted)


__all__ = ["AdapterState", "StartGroup", "Wish", "placed"]
