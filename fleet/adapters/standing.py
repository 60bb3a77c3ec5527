"""An adapter as a process of its own: it stands for an id, beats, and carries out commands until it is told to go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fleet import process
from fleet.adapters.base import Adapter
from fleet.adapters.runner import TemplateOf, note_ended, run_commands
from fleet.clock import Clock, SystemClock
from fleet.domain.adapters import NewAdapter, Tenure
from fleet.faultpoints import reach
from fleet.storage.interfaces import ProvenDead, Storage

HEARTBEAT = 5.0
LEASE = 30.0
BETWEEN_LOOKS = 1.0
"""Seconds between two looks for commands at most."""

_log = logging.getLogger("fleet.adapter")


@dataclass(frozen=True, slots=True)
class Terms:
    """On which an adapter process stands for its id.

    Attributes:
        priority: who is asked first: the higher.
        heartbeat: seconds between two heartbeats.
        lease: seconds for which it is believed without another; longer than any one command takes.
    """

    priority: int = 0
    heartbeat: float = HEARTBEAT
    lease: float = LEASE


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
        self._beaten_at = 0.0
        self._is_replaced = False

    def run(self, *, once: bool = False) -> int:
        """Stand for the id; return how many commands were carried out.

        Args:
            once: do what there is to do, and go.
        """
        tenure = self._stand()
        done = 0
        watch = self._storage.watch()
        try:
            while True:
                done += self._act(tenure)
                if once or not self._goes_on(tenure):
                    break
                self._wait(min(BETWEEN_LOOKS, watch.poll_interval()), watch.fileno())
                watch.changed()
        finally:
            watch.close()
        if self._is_replaced:
            _log.info("another process stands for adapter %s: this one ends", tenure.adapter_id)
        else:
            self._storage.adapters.leave(tenure)
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
        self._beaten_at = self._clock.boottime()
        _log.info("adapter %s is ready, epoch %d", tenure.adapter_id, tenure.epoch)
        reach("adapter.standing")
        return tenure

    def _act(self, tenure: Tenure) -> int:
        outcomes = run_commands(
            self._storage,
            self._adapter,
            None,
            self._template_of,
            self._proven_dead,
            tenure,
            lambda: self._goes_on(tenure),
        )
        for outcome in outcomes:
            if outcome.error is None:
                _log.info("%s %s", outcome.kind, outcome.group_id)
            else:
                _log.error("%s %s failed: %s", outcome.kind, outcome.group_id, outcome.error)
        for line in note_ended(self._storage, self._adapter):
            _log.error("%s", line)
        return len(outcomes)

    def _goes_on(self, tenure: Tenure) -> bool:
        """Beat, if it is time; return whether there is reason to go on."""
        if self._told_to_go():
            return False
        now = self._clock.boottime()
        if now - self._beaten_at >= self._terms.heartbeat:
            self._is_replaced = self._storage.adapters.beat(tenure, self._adapter.info().limits) is None
            self._beaten_at = now
        return not self._is_replaced
