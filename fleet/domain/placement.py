"""Which adapters start the workers that are missing: pure, from what is known of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.adapters import AdapterStatus, Limits
from fleet.domain.lanes import satisfies
from fleet.domain.reasons import Reason


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
        on_request: what its workers can offer beyond its base capabilities where a launch asks for it.
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


@dataclass(frozen=True, slots=True)
class StartGroup:
    """Start a group of `size` workers through `adapter_id`.

    Attributes:
        adapter_id: the adapter.
        size: how many workers.
        capabilities: what each of them must offer, whatever the pool's template says.
    """

    adapter_id: str
    size: int
    capabilities: Mapping[str, float] = field(default_factory=dict)


def placed(
    missing: int,
    most: int,
    adapters: Sequence[AdapterState],
    wanted: Sequence[Mapping[str, float]],
    now: datetime,
    offered: Mapping[str, float] | None = None,
) -> tuple[tuple[StartGroup, ...], list[Reason]]:
    """Distribute missing workers over adapters: the capable first, then by priority; who has no room is passed over.

    An adapter that cannot shrink a group gets whole groups, rounded up.

    Args:
        missing: workers wanted and not there.
        most: launches of one pass at most; a whole group is not cut.
        adapters: those that may be ordered from.
        wanted: what tasks require that nobody serves now.
        now: the time.
        offered: what the pool's workers offer wherever they are started; it prevails over what a place offers.

    Returns:
        What to start, and why there is less of it than is missing.
    """
    if missing <= 0:
        return (), []
    reasons: list[Reason] = []
    able = [adapter for adapter in adapters if _may_start(adapter, now, reasons)]
    able.sort(key=lambda adapter: (-_served(adapter, wanted, offered or {}), -adapter.priority, adapter.adapter_id))
    left = min(missing, most)
    if left < missing:
        text = f"{left} of {missing} launches now: that many in one pass at most"
        reasons.append(Reason("launches_per_cycle", text))
    starts: list[StartGroup] = []
    for adapter in able:
        if left <= 0:
            break
        sizes = _sizes(adapter, left)
        starts += [StartGroup(adapter.adapter_id, size) for size in sizes]
        left -= sum(sizes)
    if left > 0:
        text = f"{left} workers find no adapter with room" if adapters else "there is no adapter"
        reasons.append(Reason("no_room" if adapters else "no_adapter", text))
    return _needed(starts, min(missing, most)), reasons


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


def _sizes(adapter: AdapterState, missing: int) -> list[int]:
    """Return the sizes of the groups to start at one adapter."""
    largest, room = adapter.limits.workers_per_group, adapter.room
    if largest is None:
        return [missing]
    whole, rest = divmod(missing, largest)
    sizes = [largest] * whole + ([rest if adapter.resizes else largest] if rest else [])
    return sizes if room is None else sizes[:room]
