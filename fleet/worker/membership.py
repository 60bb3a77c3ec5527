"""A worker's standing in the registry: which life it is in, whether that is confirmed, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from fleet.clock import Clock
from fleet.domain.execution import Claimant
from fleet.domain.spreading import BY_RANK_EVERY, PULLED, Allocation, spreading_of
from fleet.domain.worker import Beat, WorkerStatus
from fleet.errors import WorkerIdTaken
from fleet.storage.interfaces import Storage
from fleet.worker.enrolment import enrol, new_incarnation, registration
from fleet.worker.patience import TROUBLE, patiently
from fleet.worker.record import Phase, nanoseconds, now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot

T = TypeVar("T")

LEASES_OF_PATIENCE = 5

_log = logging.getLogger("fleet.worker")


class Membership:
    """The registry's view of one worker, from the worker's side.

    Args:
        settings: the group's settings.
        number: the worker's slot.
        slot: its record in shared memory.
        storage: the store.
        handlers: names of what it can execute.
        clock: for pauses.
        allocation: returns how claims of the pool spread now.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        number: int,
        slot: Slot,
        storage: Storage,
        handlers: Iterable[str],
        clock: Clock,
        allocation: Callable[[], Allocation] = lambda: PULLED,
    ) -> None:
        self._settings = settings
        self._number = number
        self._slot = slot
        self._storage = storage
        self._handlers = tuple(handlers)
        self._clock = clock
        self.patience = settings.lease * LEASES_OF_PATIENCE
        self.ended = False
        self._allocation = allocation
        self._learned = PULLED
        self._claims_spread = 0
        self.claimant = self._claimant(slot.incarnation or new_incarnation())

    def _claimant(self, incarnation: str) -> Claimant:
        settings = self._settings
        spreading = spreading_of(self._learned, settings.pool, settings.capabilities)
        return Claimant(
            settings.worker_name(self._number), incarnation, settings.lease, settings.concurrency > 1, spreading
        )

    def claiming(self) -> Claimant:
        """Return who claims now: as the pool's claims spread at this moment, and some of them by rank alone."""
        learned = self._allocation()
        if learned is not self._learned:
            self._learned = learned
            self.claimant = self._claimant(self.claimant.incarnation)
        spreading = self.claimant.spreading
        if spreading is None:
            return self.claimant
        self._claims_spread += 1
        if self._claims_spread % BY_RANK_EVERY:
            return self.claimant
        return replace(self.claimant, spreading=replace(spreading, by_rank=True))

    def enrol(self, wanted: Callable[[], bool]) -> bool:
        """Register the present incarnation.

        Args:
            wanted: asked while a predecessor's lease is waited out; False gives up.

        Returns:
            False when it gave up, or another live worker has the id (which is logged).
        """
        new = registration(self._settings, self._number, self.claimant.incarnation, self._handlers)
        asked = now_ns()

        def still_wanted() -> bool:
            nonlocal asked
            self._slot.beats()
            asked = now_ns()
            return wanted()

        def attempt() -> bool:
            nonlocal asked
            asked = now_ns()
            return enrol(self._storage, new, self._clock, still_wanted)

        try:
            enrolled = self.patiently(attempt, "registering")
        except WorkerIdTaken as taken:
            _log.error("%s", taken)
            enrolled = False
        self.ended = not enrolled
        if enrolled:
            self._confirm(asked)
        return enrolled

    def _confirm(self, asked: int) -> None:
        """Note that the registry knew this life at a time (boot nanoseconds)."""
        self._slot.fence_at = asked + nanoseconds(self._settings.lease - self._settings.heartbeat)

    def start_over(self, wanted: Callable[[], bool]) -> bool:
        """Register as a new incarnation, after the registry has given up or forgotten this one; see `enrol`.

        Its claims are void: whoever rescued them decides, not this worker.
        """
        _log.warning("the registry does not know this life of the worker any more: registering anew")
        incarnation = new_incarnation()
        self._slot.enters(Phase.STARTING)
        self._slot.set_incarnation(incarnation)
        self.claimant = self._claimant(incarnation)
        return self.enrol(wanted)

    def is_confirmed(self) -> bool:
        """Return whether the worker may claim: where it would be fenced it begins nothing until a beat gets through.

        Where the store allows it, a read of the worker's own row stands for the beat: another's long write lock is no
        partition.
        """
        asked = now_ns()
        if asked <= self._slot.fence_at:
            return True
        if not self._storage.tolerates_slow_writes:
            return False
        try:
            seen = self._storage.registry.verify(self.claimant.worker_id, self.claimant.incarnation)
        except TROUBLE as error:
            _log.warning("the lease is over and the registry cannot be read (%s): claiming nothing", error)
            return False
        if seen.known and seen.status is WorkerStatus.ACTIVE:
            self._confirm(asked)
        # Anything else is told by the claim itself, which then gets nothing.
        return True

    def leave(self, reason: str) -> None:
        """Deregister; what is still claimed goes back to the queue in the same transaction."""
        if self.ended:
            return
        self.ended = True
        claimant = self.claimant
        registry = self._storage.registry
        done, failed = self._slot.done, self._slot.failed
        last = Beat(claimant.worker_id, claimant.incarnation, tasks_done=done, tasks_failed=failed)

        def end() -> None:
            if done or failed:
                registry.beat([last])
            registry.end(claimant.worker_id, claimant.incarnation, reason=reason)

        self.patiently(end, "deregistering")

    def patiently(self, operation: Callable[[], T], what: str) -> T:
        """Run a transaction, again and again for some leases while the database does not answer."""
        return patiently(operation, what, self.patience, self._clock, self._slot.beats)
