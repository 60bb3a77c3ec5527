"""Whether somebody works, or will: sentences from a Sight about pools, what they ask for and what comes of it. Pure.

A pool whose number follows the work asks for what its last pass wanted. Having nobody is well while nothing waits, and
for as long as its next pass is to be expected: that will start whom it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.domain.durations import format_seconds
from fleet.domain.policies import fixed, known_policies
from fleet.domain.policies.in_force import in_force
from fleet.errors import UsageError
from fleet.monitoring.sight import Sight
from fleet.monitoring.workers import WorkerState

NOBODY_ASKS = "no pool says how many there should be"
RUN_SCALER = "does the scaler run?"


def why_nothing_runs(sight: Sight) -> str | None:
    """Return why a new task would wait for ever, None when a worker is live or will be."""
    if sight.claiming() or any(map(_will_see_to_it, sight.pools, [sight] * len(sight.pools))):
        return None
    if sight.scaled_to_zero():
        return "every pool was scaled to 0"
    pools = sight.elastic()
    if pools:
        return f"no worker is live, and {_unseen(sight, pools[0])}: {RUN_SCALER}"
    return f"no worker is live and {NOBODY_ASKS}"


def _will_see_to_it(pool: str, sight: Sight) -> bool:
    """Return whether a pool asks for workers, or its next pass will where there is work."""
    return bool(sight.asked_for(pool)) or (pool in sight.elastic() and sight.is_attended(pool))


def nobody_works(sight: Sight) -> tuple[str, ...]:
    """Return that tasks wait and nobody is there, or on the way, to run them."""
    waiting = sight.waiting()
    if waiting == 0 or sight.live() or sight.scaled_to_zero():
        return ()
    if any(_is_on_its_way(sight, name) for name in sight.elastic()):
        return ()
    return (f"{tasks_wait(waiting)}, no worker is live{_why_nobody(sight)}",)


def _is_on_its_way(sight: Sight, pool: str) -> bool:
    """Return whether a pool that follows the work has launches under way, or wanted nobody a moment ago."""
    return sight.launching(pool) > 0 or (sight.is_attended(pool) and not sight.asked_for(pool))


def _why_nobody(sight: Sight) -> str:
    late = sum(1 for worker in sight.workers if sight.state(worker) is WorkerState.LATE)
    if late:
        return f", but {late} {'is' if late == 1 else 'are'} late: their beats may wait for somebody's lock"
    asked = sum(sight.asked_for(name) or 0 for name in sight.pools)
    elastic = sight.elastic()
    attended = [name for name in elastic if sight.is_attended(name)]
    if attended:
        return f": pool {attended[0]} wants {asked}, and none is launching (fleet explain scaling)"
    if asked and not elastic:
        return f", but the pools ask for {asked}: {RUN_SCALER}"
    if elastic:
        return f", and {_unseen(sight, elastic[0])}: {RUN_SCALER}"
    return f", but the pools ask for {asked}: {RUN_SCALER}" if asked else f" and {NOBODY_ASKS}"


def nobody_is_needed(sight: Sight) -> tuple[str, ...]:
    """Return that tasks wait and nobody runs them now, where that is as it should be."""
    waiting = sight.waiting()
    if waiting == 0 or sight.live():
        return ()
    if sight.scaled_to_zero():
        return (f"{tasks_wait(waiting)}: nothing will run them while every pool is scaled to 0",)
    for name in sight.elastic():
        if coming := sight.launching(name):
            return (f"{tasks_wait(waiting)}: {coming} workers of pool {name} are launching",)
    for name in sight.elastic():
        if _is_on_its_way(sight, name):
            ago = format_seconds(sight.unattended_for(name) or 0.0)
            return (
                f"{tasks_wait(waiting)}: the last pass of pool {name}, {ago} ago, wanted no workers "
                "(fleet explain scaling says why)",
            )
    return ()


def unseen(sight: Sight) -> tuple[str, ...]:
    """Return which pools follow the work, and no pass has looked at them for long while there is some."""
    if not (sight.waiting() or sight.live()) or nobody_works(sight):
        return ()
    return tuple(
        f"{_unseen(sight, name)}, and its number follows the work: {RUN_SCALER}"
        for name in sight.elastic()
        if not sight.is_attended(name)
    )


def _unseen(sight: Sight, pool: str) -> str:
    ago = sight.unattended_for(pool)
    if ago is None:
        return f"no pass has decided for pool {pool} yet"
    return f"no pass has looked at pool {pool} for {format_seconds(ago)}"


def refused(sight: Sight) -> tuple[str, ...]:
    """Return which pools have settings that every pass refuses, and why."""
    return tuple(f"pool {name}: {why}" for name, why in _refusals(sight))


def _refusals(sight: Sight) -> Iterator[tuple[str, str]]:
    for name, settings in sorted(sight.pools.items(), key=lambda item: str(item[0])):
        if settings.policy not in known_policies():
            # Somebody's own policy is known where its package is installed.
            if not sight.is_attended(name):
                known = ", ".join(known_policies())
                yield name, f"policy {settings.policy} is unknown here: fleet-scaler --policy takes one of {known}"
        elif settings.policy == "fixed" and fixed.target(settings.settings) is None:
            yield name, fixed.unreadable(settings.settings)
        else:
            try:
                in_force(settings.policy, settings.settings)
            except UsageError as error:
                yield name, f"its passes are refused: {error}"


def tasks_wait(number: int) -> str:
    """Return that so many tasks wait."""
    return "1 task waits" if number == 1 else f"{number} tasks wait"
