"""An adapter as a process of its own: it stands for an id, beats, and carries out commands until it is told to go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fleet import process
from fleet.adapters.base import Adapter, AdapterFailed
from fleet.adapters.pulse import Pulse
from fleet.adapters.reconciling import Sizes, end_leftovers
from fleet.adapters.runner import TemplateOf, note_ended, run_commands
from fleet.clock import Clock, SystemClock
from fleet.domain.adapters import NewAdapter, Tenure
from fleet.faultpoints import reach
from fleet.storage.interfaces import ProvenDead, Storage

HEARTBEAT = 5.0
LEASE = 30.0
LEASE_OF_ONCE = 150.0
"""Seconds for which an adapter that runs from time to time is believed: two minutes of cron, and some."""

BETWEEN_LOOKS = 1.0
"""Seconds between two looks for commands at most."""

SOONEST_LOOK = 0.1
"""Seconds between two looks at least."""

BETWEEN_REVIEWS = 60.0
"""Seconds between two comparisons of what stands at the place with what the rows say."""

_log = logging.getLogger("fleet.adapter")


@dataclass(frozen=True, slots=True)
class Terms:
    """On which an adapter process stands for its id.

    Attributes:
        priority: who is asked first: the higher.
        heartbeat: seconds between two heartbeats.
        lease: seconds for which it is believed without another.
        once: whether it does what there is to do, goes, and comes again within the lease.
    """

    priority: int = 0
    heartbeat: float = HEARTBEAT
    lease: float = LEASE
    once: bool = False


class StandingAdapter:
    """Carries out the commands of all pools for one adapter.

    Args:
        storage: the store.
        adapter: who acts.
        terms: what it can take, and for how long it is believed.
        template_of: how workers of a pool are started; may raise LaunchFailed.
        told_to_go: whether it is to end after the present command.
        wait: waits so many seconds at most, and no longer than until it is told to go.
        clock: for the time between heartbeats.
        proven_dead: whether a process is certainly gone.
    """

    def __init__(
        self,
        storage: Storage,
        adapter: Adapter,
        terms: Terms,
        template_of: TemplateOf,
        told_to_go: Callable[[], bool],
        wait: Callable[[float, int | None], None],
        clock: Clock | None = None,
        proven_dead: ProvenDead = process.is_dead,
    ) -> None:
        self._storage = storage
        self._adapter = adapter
        self._terms = terms
        self._template_of = template_of
        self._told_to_go = told_to_go
        self._wait = wait
        self._clock = clock or SystemClock()
        self._proven_dead = proven_dead
        self._sizes = Sizes(storage, adapter)
        self._review_at = 0.0
        self._trouble: str | None = None

    def run(self) -> int:
        """Stand for the id until told to go, or replaced; return how many commands were tried."""
        tenure = self._stand()
        done = 0
        watch = self._storage.watch()
        try:
            with Pulse(self._storage, tenure, self._terms.heartbeat, self._clock) as pulse:
                while True:
                    done += self._act(tenure, pulse)
                    if self._terms.once or not self._goes_on(pulse):
                        break
                    # In a busy fleet somebody commits all the time.
                    self._wait(SOONEST_LOOK, None)
                    self._wait(min(BETWEEN_LOOKS, watch.poll_interval()), watch.fileno())
                    watch.changed()
        finally:
            watch.close()
        self._go(tenure, pulse)
        return done

    def _stand(self) -> Tenure:
        info = self._adapter.info()
        tenure = self._storage.adapters.stand(
            NewAdapter(
                info.adapter_id,
                info.kind,
                process.identify(),
                info.limits,
                self._terms.lease,
                resizes=info.resizes,
                priority=self._terms.priority,
            )
        )
        _log.info("adapter %s is ready, epoch %d", tenure.adapter_id, tenure.epoch)
        reach("adapter.standing")
        return tenure

    def _go(self, tenure: Tenure, pulse: Pulse) -> None:
        if pulse.is_replaced:
            _log.info("another process stands for adapter %s: this one ends", tenure.adapter_id)
        elif self._terms.once:
            self._storage.adapters.rest(tenure)
        else:
            self._storage.adapters.leave(tenure)

    def _goes_on(self, pulse: Pulse) -> bool:
        return not self._told_to_go() and not pulse.is_replaced

    def _act(self, tenure: Tenure, pulse: Pulse) -> int:
        """Carry out what is ordered, and look after what stands; return how many commands were tried."""
        pulse.gets_on(self._adapter.info())
        outcomes = run_commands(
            self._storage,
            self._adapter,
            None,
            self._template_of,
            self._proven_dead,
            tenure,
            lambda: self._goes_on_from(pulse),
        )
        for outcome in outcomes:
            if outcome.error is None:
                _log.info("%s %s", outcome.kind, outcome.group_id)
            else:
                _log.error("%s %s failed: %s", outcome.kind, outcome.group_id, outcome.error)
        if not any(outcome.silent for outcome in outcomes):
            self._look_after()
        return len(outcomes)

    def _goes_on_from(self, pulse: Pulse) -> bool:
        pulse.gets_on(self._adapter.info())
        return self._goes_on(pulse)

    def _look_after(self) -> None:
        """Note what has ended at the place, and end what should have; a place that is silent is told of once."""
        try:
            lines = note_ended(self._storage, self._adapter)
            self._sizes.tell()
            now = self._clock.boottime()
            if now >= self._review_at:
                lines += end_leftovers(self._storage, self._adapter)
                self._review_at = now + BETWEEN_REVIEWS
        except AdapterFailed as failure:
            if str(failure) != self._trouble:
                _log.error("what stands there is not known: %s", failure)
            self._trouble = str(failure)
            return
        self._trouble = None
        for line in lines:
            _log.error("%s", line)
