"""Claiming tasks and recording how they ended: both in one commit, fenced, never silently dropped."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from fleet.clock import boottime
from fleet.domain.execution import ClaimedTask, ClaimReply, Fence
from fleet.domain.lanes import Lane, Offer, tiers
from fleet.domain.task import TaskStatus
from fleet.faultpoints import reach
from fleet.storage.interfaces import WorkQueue
from fleet.worker.executor import Execution
from fleet.worker.membership import Membership
from fleet.worker.patience import TROUBLE
from fleet.worker.record import Phase
from fleet.worker.shared import Slot
from fleet.worker.tally import Tally

Lanes = tuple[tuple[int, int], ...]

_log = logging.getLogger("fleet.worker")


class LearnedLanes:
    """The lanes that a worker serves, learned as they come into being.

    Args:
        offer: what the worker can take.
        weighted: whether the order of queues is drawn anew for every claim.
    """

    def __init__(self, offer: Offer, weighted: bool) -> None:
        self._offer = offer
        self._weighted = weighted
        self._served: list[Lane] = []
        self._newest = 0
        self._tiers: Lanes = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the lanes served."""
        return tuple(lane.lane_id for lane in self._served)

    def learn(self, queue: WorkQueue, newest: int | None = None) -> None:
        """Read the lanes made since the last time.

        Args:
            queue: where they are.
            newest: the newest lane's id, if known: nothing is read when it is not new.
        """
        if newest is not None and newest <= self._newest:
            return
        new = queue.lanes(self._newest)
        if new:
            self._newest = new[-1].lane_id
            self._served += [lane for lane in new if self._offer.serves(lane)]
            self._tiers = tiers(self._served, self._offer, random.random)

    def to_claim(self) -> Lanes:
        """Return (lane id, tier) for the next claim."""
        if self._weighted:
            self._tiers = tiers(self._served, self._offer, random.random)
        return self._tiers


class Claims:
    """What one worker has claimed, and what it has executed and not yet recorded.

    Args:
        queue: the queue.
        membership: whose claims they are.
        slot: the worker's record in shared memory.
        lanes: the lanes that it serves.
        heartbeat: seconds between beats.
    """

    def __init__(
        self, queue: WorkQueue, membership: Membership, slot: Slot, lanes: LearnedLanes, heartbeat: float
    ) -> None:
        self._queue = queue
        self._membership = membership
        self._slot = slot
        self._heartbeat = heartbeat
        self.lanes = lanes
        self.tally = Tally()
        self.executed: list[Execution] = []
        self.recorded = 0
        self.recorded_at = boottime()

    def next(self, limit: int) -> tuple[tuple[ClaimedTask, ...], ClaimReply | None]:
        """Record what was executed and claim up to `limit` tasks, in one commit.

        Returns:
            The tasks, noted in shared memory as held, and the reply; None when claiming failed (which is logged).

        Raises:
            DatabaseError: results could not be recorded for several leases (which is logged with their ids).
        """
        asked = boottime()
        reply = self.record(limit) if self.executed else self._claim(limit)
        if reply is None:
            return (), None
        self._slot.hold([claimed.fence for claimed in reply.tasks])
        self._slot.phase = Phase.CLAIMING
        return self._still_held(reply.tasks, asked), reply

    def _claim(self, limit: int) -> ClaimReply | None:
        self._slot.enters(Phase.CLAIMING)
        try:
            reply = self._queue.claim(self._membership.claimant, self.lanes.to_claim(), limit)
            if reply.tasks:
                reach("worker.claimed")
        except TROUBLE as error:
            # It may have been made all the same: the next beats find that nobody holds it, and give it back.
            _log.warning("claiming failed: %s", error)
            return None
        self.recorded_at = boottime()
        return reply

    def record(self, limit: int = 0) -> ClaimReply:
        """Record what was executed, and claim up to `limit` tasks in the same commit; errors as for `next`."""
        executed, self.executed = self.executed, []
        self._slot.enters(Phase.RECORDING)
        reach("worker.executed")
        try:
            reply = self._membership.patiently(
                lambda: self._finish_and_claim(executed, limit), f"recording task {executed[0].claimed.task_id}"
            )
        except TROUBLE as error:
            lost = ", ".join(str(execution.claimed.task_id) for execution in executed)
            _log.error("how these tasks ended could not be recorded and is lost: %s (%s)", lost, error)
            raise
        reach("worker.recorded")
        self.recorded_at = boottime()
        self._account(executed, reply.accepted)
        return reply

    def _finish_and_claim(self, executed: Sequence[Execution], limit: int) -> ClaimReply:
        now = boottime()
        finishes = [execution.finish(now, random.random) for execution in executed]
        lanes = self.lanes.to_claim() if limit else ()
        reply = self._queue.finish_and_claim(self._membership.claimant, finishes, lanes, limit)
        if reply.tasks:
            reach("worker.claimed")
        return reply

    def _account(self, executed: Sequence[Execution], accepted: frozenset[Fence]) -> None:
        self.recorded += len(executed)
        taken = self._slot.taken
        for position, execution in enumerate(executed):
            claimed = execution.claimed
            if claimed.fence not in accepted and position >= taken:
                _log.warning(
                    "claim %d of task %d was lost: its result is dropped", claimed.claim_token, claimed.task_id
                )
                continue
            self.tally.add(execution)
            if execution.failed:
                self._slot.failed += 1
            else:
                self._slot.done += 1

    def _still_held(self, tasks: tuple[ClaimedTask, ...], asked: float) -> tuple[ClaimedTask, ...]:
        """Return the tasks that are still ours: a claim whose reply took long may have been given back meanwhile."""
        if not tasks or boottime() - asked <= self._heartbeat / 2:
            return tasks
        held = tuple(claimed for claimed in tasks if self._holds(claimed))
        if len(held) < len(tasks):
            self._slot.hold([claimed.fence for claimed in held])
        return held

    def _holds(self, claimed: ClaimedTask) -> bool:
        row = self._membership.patiently(lambda: self._queue.get(claimed.task_id), f"verifying {claimed.task_id}")
        return row is not None and row.status is TaskStatus.RUNNING and row.claim_token == claimed.claim_token

    def give_back(self, tasks: Sequence[ClaimedTask], reason: str) -> None:
        """Return claimed tasks that were not begun; where that fails, leaving the registry returns them."""
        fences = [claimed.fence for claimed in tasks]
        try:
            self._queue.release(self._membership.claimant.incarnation, fences, interrupted=False, reason=reason)
        except TROUBLE as error:
            _log.warning("giving back %d tasks failed: %s", len(fences), error)

    def progress(self, fence: Fence, fraction: float | None, text: str | None) -> bool:
        """Store a task's progress; return False when its claim is gone. Trouble with it never reaches the handler."""
        try:
            return self._queue.progress(self._membership.claimant.incarnation, fence, fraction, text)
        except TROUBLE as error:
            _log.warning("progress of task %d was not stored: %s", fence.task_id, error)
            return True
