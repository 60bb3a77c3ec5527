"""An adapter as a process of its own: it stands for an id, beats, and carries out commands until it is told to go."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from fleet import process
from fleet.adapters.base import Adapter, AdapterFailed
from fleet.adapters.pulse import Pulse
from fleet.adapters.reconciling import Sizes, end_leftovers
from fleet.adapters.runner import TemplateOf, note_ended, run_commands
from fleet.clock import Clock, SystemClock
from fleet.domain.adapters import NewAdapter, Tenure, is_alive
from fleet.errors import LASTING, ConflictError, DatabaseError
from fleet.faultpoints import reach
from fleet.storage.interfaces import ProvenDead, Storage, Watch

HEARTBEAT = 5.0
LEASE = 30.0
LEASE_OF_ONCE = 150.0
"""Seconds for which an adapter that runs from time to time is believed: two minutes of cron, and some."""

BETWEEN_LOOKS = 1.0
"""Seconds between two looks for commands at most, and between two looks at the place at least."""

SOONEST_LOOK = 0.1
"""Seconds between two looks at least."""

BETWEEN_REVIEWS = 60.0
"""Seconds between two comparisons of what stands at the place with what the rows say."""

LONGEST_PAUSE = 10.0
"""Seconds between two tries at most while the database does not answer."""

_UNREACHED = "the database does not answer"
_UNKNOWN = "what stands at the place is not known"

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
        self._look_at = self._review_at = 0.0
        self._troubles: dict[str, str] = {}
        self._failed_looks = 0

    def run(self) -> int:
        """Stand for the id until told to go, or replaced; return how many commands were tried."""
        tenure = self._stand()
        done = 0
        watch = self._storage.watch()
        try:
            with Pulse(self._storage, tenure, self._terms.heartbeat, self._clock) as pulse:
                while True:
                    self._check_there(watch)
                    done += self._try_to_act(tenure, pulse)
                    if self._terms.once or not self._goes_on(pulse):
                        break
                    # In a busy fleet somebody commits all the time.
                    self._wait(SOONEST_LOOK, None)
                    self._wait(self._pause(watch), watch.fileno())
                    watch.changed()
        finally:
            watch.close()
        self._go(tenure, pulse)
        return done

    def _try_to_act(self, tenure: Tenure, pulse: Pulse) -> int:
        """Act; while the database does not answer, which may pass, do nothing. Each write names the tenure's epoch."""
        try:
            done = self._act(tenure, pulse)
        except DatabaseError as error:
            if self._terms.once or isinstance(error, LASTING):
                raise
            if not self._failed_looks:
                # Later ones may say it in other words.
                self._tell_trouble(_UNREACHED, str(error))
            self._failed_looks += 1
            return 0
        self._failed_looks = 0
        self._tell_trouble(_UNREACHED, None)
        return done

    def _pause(self, watch: Watch) -> float:
        """Return seconds to the next look: ever more while looks fail, and not the same for all who wait."""
        if not self._failed_looks:
            return min(BETWEEN_LOOKS, watch.poll_interval())
        return min(LONGEST_PAUSE, BETWEEN_LOOKS * 2.0 ** min(self._failed_looks, 10)) * random.uniform(0.5, 1.0)

    def _check_there(self, watch: Watch) -> None:
        if watch.replaced():
            raise DatabaseError(f"{self._storage.url}: what was opened there is gone, or another in its place")

    def _stand(self) -> Tenure:
        info = self._adapter.info()
        self._check_free(info.adapter_id)
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

    def _check_free(self, adapter_id: str) -> None:
        """Refuse to put an adapter that is there to stay out of its place by one that goes again at once."""
        known = self._storage.adapters.get(adapter_id)
        if not self._terms.once or known is None or known.rests:
            return
        if is_alive(known, self._storage.now(), self._proven_dead):
            raise ConflictError(
                f"pid {known.process.pid} on {known.process.host} stands for adapter {adapter_id}: leave out --once to "
                "take over from it, or choose another --adapter-id"
            )

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
        self._get_on(pulse)
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
        self._get_on(pulse)
        return self._goes_on(pulse)

    def _get_on(self, pulse: Pulse) -> None:
        info = self._adapter.info()
        pulse.gets_on(info)
        self._tell_trouble("the place cannot be asked", info.problem)

    def _tell_trouble(self, what: str, why: str | None) -> None:
        """Log that something does not go, once for each reason, and that it goes again; None where it does."""
        if why is None:
            if self._troubles.pop(what, None) is not None:
                _log.info("no longer so: %s", what)
        elif self._troubles.get(what) != why:
            self._troubles[what] = why
            _log.error("%s: %s", what, why)

    def _look_after(self) -> None:
        """Note what has ended at the place, and end what should have; a place that is silent is told of once."""
        now = self._clock.boottime()
        if now < self._look_at:
            return
        self._look_at = now + BETWEEN_LOOKS
        try:
            lines = note_ended(self._storage, self._adapter)
            self._sizes.tell()
            if now >= self._review_at:
                lines += end_leftovers(self._storage, self._adapter)
                self._review_at = now + BETWEEN_REVIEWS
        except AdapterFailed as failure:
            self._tell_trouble(_UNKNOWN, str(failure))
            return
        self._tell_trouble(_UNKNOWN, None)
        for line in lines:
            _log.error("%s", line)
