"""Another policy on a pool's own past: what came is simulated again, and compared with what happened.

Pure but for what it is given: history, ledger, groups and a snapshot are read by the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

from fleet.domain.decision import Decision
from fleet.domain.group import GroupStatus
from fleet.domain.snapshot import PoolSettings
from fleet.errors import NotFound, UsageError
from fleet.scaler.again import ours, servable, tasks_of
from fleet.scaler.past import Happened, Past, happened
from fleet.simulation import Outcome, Place, Scenario, run
from fleet.simulation.chances import Chance, constant
from fleet.simulation.outcome import percentile

UNKNOWN_BOOT = 1.0
LEAST_EVERY, MOST_EVERY = 0.1, 3_600.0
MOST_BOOTS = 1_000
"""Boots of one adapter that are remembered, the newest."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A pool's past, ready to be run again.

    Attributes:
        scenario: tasks, places and times.
        happened: what came of it in truth.
        since: when it begins.
        until: when it ends.
        unknown: what could not be known, in words.
    """

    scenario: Scenario
    happened: Happened
    since: datetime
    until: datetime
    unknown: tuple[str, ...] = field(default_factory=tuple)

    def outcome(
        self, settings: PoolSettings, name: str | None = None, watch: Callable[[float], None] | None = None
    ) -> Outcome:
        """Return what a policy would have done; raise UsageError where that takes more passes than anybody waits for.

        Args:
            settings: the policy with its settings, and the pool's bounds.
            name: what to call it.
            watch: told the virtual time after each pass.
        """
        try:
            return run(self.scenario, settings, name, watch)
        except UsageError as error:
            raise UsageError(str(error).replace("--for", "--since")) from None


def replay_of(past: Past, every: float | None = None, seed: int = 0) -> Replay:
    """Return a pool's past, ready to be run again.

    Args:
        past: what is known of it.
        every: seconds between two passes; None for as many as there were.
        seed: of boot times and failed launches.

    Raises:
        NotFound: nothing has come for this pool.
        UsageError: more tasks have come than are simulated.
    """
    came, unknown = ours(past)
    if not came:
        raise NotFound(f"pool {past.snapshot.pool}: no task came for it since {_time(past.history.since)}")
    places = _places(past, unknown)
    came = servable(came, places, unknown)
    begin = max(past.history.since, min([came[0].at, *(one.created_at for one in past.ledger[:1])]))
    until = past.history.until
    before = next((one for one in past.ledger if one.last_seen_at >= begin), None)
    scenario = Scenario(
        tasks=tasks_of(came, begin, unknown),
        places=places,
        every=every or _every(past.ledger),
        until=(until - begin).total_seconds(),
        seed=seed,
        supply=0 if before is None or before.created_at > begin + timedelta(seconds=1) else before.supply,
        start=begin,
    )
    unknown += _gaps(past, begin)
    return Replay(scenario, happened(past, came, begin), begin, until, tuple(unknown))


# Who starts workers, and how long that takes


def _places(past: Past, unknown: list[str]) -> tuple[Place, ...]:
    boots: defaultdict[str, list[float]] = defaultdict(list)
    failed: defaultdict[str, int] = defaultdict(int)
    for group in past.groups:
        if group.adapter_id is None or group.created_at < past.history.since:
            continue
        if group.contacted_at is not None:
            boots[group.adapter_id].append(max(0.0, (group.contacted_at - group.created_at).total_seconds()))
        elif group.status is GroupStatus.FAILED:
            failed[group.adapter_id] += 1
    every = [seconds for found in boots.values() for seconds in found]
    if not every:
        unknown.append(f"how long workers take to come up: {UNKNOWN_BOOT:g} s is assumed, as no launch is known")
    offered = past.snapshot.offered
    return tuple(
        Place(
            name=each.adapter_id,
            limits=replace(each.limits, base_capabilities={**(each.limits.base_capabilities or {}), **offered}),
            resizes=each.resizes,
            priority=each.priority,
            boot=_measured(boots[each.adapter_id] or every),
            failing=_share(failed[each.adapter_id], len(boots[each.adapter_id])),
        )
        for each in past.snapshot.adapters
    )


def _measured(boots: Sequence[float]) -> Chance:
    """Return boots as they were."""
    if not boots:
        return constant(UNKNOWN_BOOT)
    newest = tuple(boots[:MOST_BOOTS])

    def drawn(source: Random) -> Callable[[], float]:
        return lambda: source.choice(newest)

    return Chance("measured", sum(newest) / len(newest), drawn)


def _share(failed: int, came: int) -> float:
    # A place where every launch failed would never start any: what is asked is what workers would have been good for.
    return failed / (failed + came) if came else 0.0


def _every(ledger: Sequence[Decision]) -> float:
    """Return how many seconds there were between two passes: the usual, whatever gaps there are."""
    spans = [(one.last_seen_at - one.created_at).total_seconds() / one.repeated for one in ledger if one.repeated] or [
        (other.created_at - one.created_at).total_seconds() for one, other in pairwise(ledger)
    ]
    usual = percentile(sorted(spans), 0.5) if spans else 1.0
    return min(MOST_EVERY, max(LEAST_EVERY, round(usual, 1) or 1.0))


# What is not known


def _gaps(past: Past, begin: datetime) -> Iterator[str]:
    history = past.history
    if history.rows_since is not None:
        yield (
            f"rows of tasks that ended before {_time(history.rows_since)} are deleted: of that time statistics by "
            "minute tell what was finished, and nothing tells how long it had waited (fleet config set retention)"
        )
    elif not history.is_exact:
        yield "so many tasks came that those of each minute are told together: bursts within a minute are even"
    if not past.ledger:
        yield "what workers there were: the ledger of this pool has no decision of that time"
    elif past.ledger[0].created_at > begin + timedelta(seconds=60):
        yield f"what workers there were before {_time(past.ledger[0].created_at)}, where the ledger begins"
    if past.snapshot.slots > 1:
        yield f"workers of {past.snapshot.slots} slots: each slot is run again as a worker of its own"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


__all__ = ["Happened", "Past", "Replay", "replay_of"]
