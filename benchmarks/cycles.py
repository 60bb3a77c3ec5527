"""A worker that does nothing but claim and finish, through the interface that real ones use, in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from fleet.domain.execution import Claimant, ClaimReply, Finish, done
from fleet.domain.lanes import LaneClaim, Offer, tiers
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import NewTask
from fleet.domain.worker import WorkerRegistration
from fleet.storage.interfaces import Storage

DAY = 86_400.0
TASKS_PER_CYCLE = 2


@dataclass
class Cycler:
    """One registered worker, and what it claims.

    Attributes:
        storage: the database.
        tasks: what is enqueued for it, in turn.
        handlers: what it has.
        queues: what it serves, all by rank.
    """

    storage: Storage
    tasks: Sequence[NewTask] = (NewTask("mine"),)
    handlers: Sequence[str] = ("mine",)
    queues: Sequence[str] = ("default",)
    claimant: Claimant = field(init=False)

    def __post_init__(self) -> None:
        worker = WorkerRegistration(
            worker_id=f"bench-{uuid4().hex[:8]}",
            incarnation=uuid4().hex,
            pool="default",
            process=ProcessIdentity(),
            heartbeat_seconds=DAY,
            lease_seconds=DAY,
            handlers=tuple(self.handlers),
        )
        self.storage.registry.register(worker, lambda _: False)
        self.claimant = Claimant(worker.worker_id, worker.incarnation, worker.lease_seconds)

    def supply(self, cycles: int) -> None:
        """Enqueue what so many cycles take."""
        count = cycles * TASKS_PER_CYCLE
        self.storage.queue.enqueue([self.tasks[place % len(self.tasks)] for place in range(count)])

    def lanes(self) -> tuple[LaneClaim, ...]:
        """Return the lanes that it claims from, as a worker works them out."""
        queues = tuple((name, 1.0) for name in self.queues)
        offer = Offer(self.claimant.worker_id, frozenset(self.handlers), queues, {})
        return tuple(
            (lane, 0, preferring) for lane, _, preferring in tiers(self.storage.queue.lanes(), offer, random.random)
        )

    def run(self, cycles: int) -> float:
        """Return the seconds per task: a claim, a finish that claims the next, a finish that claims none."""
        queue, lanes = self.storage.queue, self.lanes()
        began = time.perf_counter()
        for _ in range(cycles):
            first = self._finish(queue.claim(self.claimant, lanes))
            second = self._finish(queue.finish_and_claim(self.claimant, [first], lanes))
            queue.finish_and_claim(self.claimant, [second], (), 0)
        return (time.perf_counter() - began) / (cycles * TASKS_PER_CYCLE)

    def take_and_hold(self) -> None:
        """Claim a task, and never finish it."""
        self._finish(self.storage.queue.claim(self.claimant, self.lanes()))

    def _finish(self, reply: ClaimReply) -> Finish:
        if len(reply.tasks) != 1:
            raise SystemExit(f"error: a claim got {len(reply.tasks)} tasks, not one: this run counts for nothing")
        return done(reply.tasks[0], "null", 0.0, 0.0)
