"""One maintenance pass. Level-triggered: what one pass leaves, the next one finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleet import process
from fleet.clock import Clock, SystemClock
from fleet.domain.liveness import MAINTENANCE_INTERVAL
from fleet.errors import DatabaseBusy
from fleet.maintenance.health import care
from fleet.maintenance.launches import fail_dead_launches
from fleet.maintenance.pruning import others
from fleet.storage.interfaces import Holder, MaintenancePass, ProvenDead, Storage

T = TypeVar("T")

TIME_PER_STEP = 0.2
"""Seconds after which a step leaves the rest to the next pass: whoever runs the pass has beats to send."""

TIME_FOR_RESCUE = 1.0
"""The same for the rescue, for which tasks wait."""

TIME_FOR_BEATS = 1.0
"""Seconds that others get for their beats where the write lock was waited for longer than that."""

RESCUE_BATCH = 50
ADVANCE_BATCH = 500
SWEEP_BATCH = 500
TICK_BATCH = 100
PRUNE_BATCH = 500
SHORTEST_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a pass did.

    Attributes:
        rescued: one line per worker found lost or task found without a holder.
        expired: one line per command, launch or group ended because its time was over.
        advanced: tasks that became due, or too late, or were let go after many others.
        ticked: tasks that schedules enqueued.
        swept: tasks let go, or held back, that somebody's own SQL had left behind.
        pruned: rows deleted after their retention.
        cared: one line per worker found unhealthy, restart ordered, quarantine begun or ended.
        errors: one line per step that failed; the other steps ran all the same.
        is_cut_short: whether a step left work because its time was over: the next pass need not wait its full interval.
    """

    rescued: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    advanced: int = 0
    ticked: int = 0
    swept: int = 0
    pruned: int = 0
    cared: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    is_cut_short: bool = False


def run_pass(
    storage: Storage,
    holder: Holder,
    proven_dead: ProvenDead = process.is_dead,
    clock: Clock | None = None,
    interval: float = MAINTENANCE_INTERVAL,
) -> MaintenanceReport | None:
    """Run a maintenance pass if one is due, under the fleet-wide maintenance lease.

    Every step works in bounded batches with pauses between, and a step that fails does not keep the others from
    running.

    Args:
        storage: the store.
        holder: the process that runs it.
        proven_dead: whether a process is certainly gone.
        clock: for time limits and pauses; defaults to the host's.
        interval: seconds after the last pass, whoever made it, from which on one is due.

    Returns:
        What was done; None when no pass was due or another process runs one.
    """
    clock = clock or SystemClock()
    asked = clock.boottime()
    current = storage.control.begin_maintenance(holder, interval, proven_dead)
    if current is None:
        return None
    waited = clock.boottime() - asked
    try:
        # The write lock may have been waited for, by others too: beats are sent before anybody is judged.
        clock.sleep(TIME_FOR_BEATS if waited > TIME_FOR_BEATS else 0.0)
        return _Pass(storage, current, proven_dead, clock).run()
    finally:
        storage.control.end_maintenance(current)


@dataclass
class _Pass:
    storage: Storage
    current: MaintenancePass
    proven_dead: ProvenDead
    clock: Clock
    errors: list[str] = field(default_factory=list)
    locked_out: bool = False
    is_cut_short: bool = False

    def run(self) -> MaintenanceReport:
        rescued = self._step("rescue", self._rescue)
        advanced = self._step("advance", lambda: self._count(self.storage.queue.advance, ADVANCE_BATCH))
        ticked = self._step("schedules", lambda: self.storage.schedules.tick(TICK_BATCH))
        swept = self._step("sweep", lambda: self.storage.queue.sweep(SWEEP_BATCH))
        failed = self._step("failed launches", lambda: fail_dead_launches(self.storage, self.proven_dead))
        expired = self._step("expire", lambda: self.storage.control.expire(self.current.gap, self.proven_dead))
        cared = self._step("health", self._care)
        pruned = [self._step(f"prune {name}", prune) for name, prune in self._prunes()]
        self._step("trim", self.storage.trim)
        return MaintenanceReport(
            rescued=tuple(rescued or ()),
            expired=(*(failed or ()), *(expired or ())),
            cared=tuple(cared or ()),
            advanced=advanced or 0,
            ticked=ticked or 0,
            swept=swept or 0,
            pruned=sum(count or 0 for count in pruned),
            errors=tuple(self.errors),
            is_cut_short=self.is_cut_short and not self.locked_out,
        )

    def _step(self, name: str, step: Callable[[], T]) -> T | None:
        """Run one step; note its failure instead of passing it on, so that the others run."""
        if self.locked_out:
            return None
        try:
            return step()
        except DatabaseBusy as error:
            # Nothing else would get the lock either; each would wait its full time for it.
            self.locked_out = True
            self.errors.append(f"maintenance, {name}: {error}")
        except Exception as error:
            self.errors.append(f"maintenance, {name}: {type(error).__name__}: {error}")
        return None

    def _rescue(self) -> tuple[str, ...]:
        """Rescue for one worker after the other, with pauses; what is left is looked for again."""
        lines: dict[str, None] = {}
        began = resumed = self.clock.boottime()

        def goes_on() -> bool:
            nonlocal resumed
            resumed = self._pause(resumed)
            return resumed - began <= TIME_FOR_RESCUE

        while True:
            found = self.storage.control.rescue(self.current.gap, self.proven_dead, RESCUE_BATCH, goes_on)
            lines |= dict.fromkeys(found)
            if resumed - began > TIME_FOR_RESCUE:
                self.is_cut_short = True
                return tuple(lines)
            if len(found) < RESCUE_BATCH:
                return tuple(lines)

    def _prunes(self) -> Sequence[tuple[str, Callable[[], int]]]:
        storage = self.storage
        retention = self._step("retention", lambda: storage.rules.setting("retention"))
        if retention is None:
            return ()
        kinds = {"tasks": storage.queue.prune, **others(storage)}
        return tuple(
            (name, lambda prune=prune: self._count(lambda limit: prune(retention, limit), PRUNE_BATCH))
            for name, prune in kinds.items()
        )

    def _care(self) -> tuple[str, ...]:
        return care(self.storage, self.current.gap, self.proven_dead, self.current.epoch, self._paced)

    def _paced(self, batch: Callable[[], T]) -> T:
        """Run a batch of writes, and then pause."""
        began = self.clock.boottime()
        done = batch()
        self._pause(began)
        return done

    def _pause(self, began: float) -> float:
        """Pause as long as what began then took: at least half of the time belongs to others; return when it ends."""
        self.clock.sleep(max(SHORTEST_PAUSE, self.clock.boottime() - began))
        return self.clock.boottime()

    def _count(self, batch: Callable[[int], int], limit: int) -> int:
        """Repeat `batch` while it comes back full and time is left, with pauses; return the sum."""
        began = now = self.clock.boottime()
        total = 0
        while True:
            done = batch(limit)
            total += done
            if done < limit:
                return total
            if self.clock.boottime() - began > TIME_PER_STEP:
                self.is_cut_short = True
                return total
            now = self._pause(now)
