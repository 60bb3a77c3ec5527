"""Workers poured over adapters in an order, each up to its cap. Pure, and shared by policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.domain.adapters import AdapterStatus
from fleet.domain.placement import AdapterState
from fleet.domain.policies.setting import MOST_WORKERS
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.staffing import brings, whole
from fleet.errors import UsageError

Tier = tuple[str, int | None]
"""An adapter's id, and how many workers it gets at most; None for as many as it takes."""


def poured(situation: Situation, number: int, tiers: Sequence[Tier], kept: Sequence[int]) -> dict[str, int]:
    """Return how many workers each tier should carry when `number` are wanted: the first as many as it can, and so on.

    A tier that can start nobody now is counted for what it carries, so that the next ones take over; workers of no
    tier count before all.

    Args:
        situation: the pool.
        number: workers wanted.
        tiers: in their order.
        kept: how many of them are kept for each tier, whatever those before it could take (`needed`).
    """
    carried = situation.sizes
    left = max(0, number - (situation.supply - sum(carried.get(name, 0) for name, _ in tiers)))
    adapters = {adapter.adapter_id: adapter for adapter in situation.adapters}
    most = [_least(cap, _reach(adapters.get(name), carried.get(name, 0), situation), number) for name, cap in tiers]
    shares: dict[str, int] = {}
    for at, (name, _) in enumerate(tiers):
        later = [min(pair) for pair in zip(kept[at + 1 :], most[at + 1 :], strict=True)]
        # Where there is not enough for all, each later one still gets one.
        own = min(kept[at], left - sum(map(bool, later)))
        shares[name] = max(0, min(left, most[at], max(own, left - sum(later))))
        left -= shares[name]
    return shares


def _least(*bounds: int | None) -> int:
    return min(bound for bound in bounds if bound is not None)


def needed(situation: Situation, tiers: Sequence[Tier], ratio: float) -> list[int]:
    """Return how many workers each tier needs for the tasks that it is the first to bring anybody for.

    Args:
        situation: the pool.
        tiers: in their order.
        ratio: tasks that one worker is enough for.
    """
    adapters = {adapter.adapter_id: adapter for adapter in situation.adapters}
    tasks = [0] * len(tiers)
    for work in situation.demand:
        for at, (name, _) in enumerate(tiers):
            if name not in adapters or brings(situation, adapters[name], work.requires):
                tasks[at] += work.pending + work.running
                break
    return [whole(number / ratio) for number in tasks]


def ceiling(situation: Situation, tiers: Sequence[Tier]) -> int | None:
    """Return how many workers there can be with all caps reached; None where a tier has none."""
    if any(cap is None for _, cap in tiers):
        return None
    others = situation.supply - sum(situation.sizes.get(name, 0) for name, _ in tiers)
    return others + sum(cap for _, cap in tiers if cap is not None)


def missing(situation: Situation, tiers: Sequence[Tier]) -> list[str]:
    """Return the tiers for which no adapter is there."""
    here = {adapter.adapter_id for adapter in situation.adapters} | set(situation.sizes)
    return [name for name, _ in tiers if name not in here]


def in_words(shares: Mapping[str, int]) -> str:
    """Return shares for people."""
    return ", ".join(f"{name} {number}" for name, number in shares.items())


def read_name(value: object) -> str:
    """Return an adapter's id as it was given; raise UsageError when it is none."""
    if not isinstance(value, str) or not value.strip() or set(value.strip()) & set(" ,;="):
        raise UsageError(f"adapter {value!r:.60}: give its id, as in fleet adapters")
    return value.strip()


def read_tiers(value: object) -> list[list[str | int | None]]:
    """Return tiers from `a:4, b:10, c` or from a list, as a JSON value: `[["a", 4], ["b", 10], ["c", null]]`.

    What follows the last colon of a name is its cap when it is a number (or when `=` stands there): `native:here:4`.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not parts:
        raise UsageError(f"tiers {value!r:.60}: write them in their order, as in a:4, b:10, c")
    tiers = [_read_tier(part) for part in parts]
    names = [name for name, _ in tiers]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise UsageError(f"tiers {value!r:.60}: {double} stands there twice")
    return tiers


def _read_tier(part: object) -> list[str | int | None]:
    if isinstance(part, Sequence) and not isinstance(part, str):
        if len(part) == 2 and (part[1] is None or (isinstance(part[1], int) and not isinstance(part[1], bool))):
            return [read_name(part[0]), _cap(part, part[1])]
        raise UsageError(f"tier {part!r:.60}: write an adapter's id and a whole number, or null")
    text = part.strip() if isinstance(part, str) else ""
    for sign in ("=", ":"):
        name, separator, cap = text.rpartition(sign)
        if separator and cap.strip().isdecimal():
            return [read_name(name), _cap(text, int(cap))]
    return [read_name(text), None]


def _cap(part: object, cap: int | None) -> int | None:
    if cap is not None and not 0 <= cap <= MOST_WORKERS:
        raise UsageError(f"tier {part!r:.60}: give 0 to {MOST_WORKERS} workers")
    return cap


def _reach(adapter: AdapterState | None, carried: int, situation: Situation) -> int | None:
    """Return how many workers an adapter can carry; None for any number."""
    if adapter is None or adapter.status is AdapterStatus.PAUSED:
        return carried
    if adapter.backoff_until is not None and adapter.backoff_until > situation.now:
        return carried
    if adapter.room is None or (adapter.room > 0 and adapter.limits.workers_per_group is None):
        return None
    return carried + adapter.room * (adapter.limits.workers_per_group or 0)
