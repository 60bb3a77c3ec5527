"""Claiming tasks and recording how they ended: both in one commit, fenced, never silently dropped."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleet.clock import boottime
from fleet.domain.execution import ClaimedTask, ClaimReply, Failure, Fence
from fleet.domain.lanes import LaneClaim
from fleet.domain.task import TaskStatus
from fleet.domain.worker import WorkerStatus
from fleet.errors import NotCounted
from fleet.faultpoints import reach
from fleet.storage.interfaces import Storage
from fleet.worker.executor import Execution, describe
from fleet.worker.lanes import LearnedLanes
from fleet.worker.membership import Membership
from fleet.worker.notes import Notes
from fleet.worker.overlap import Overlap
from fleet.worker.own_task import OwnTask
from fleet.worker.patience import TROUBLE
from fleet.worker.record import Phase
from fleet.worker.slot import Slot
from fleet.worker.tally import Tally

_log = logging.getLogger("fleet.worker")


class Completion(NamedTuple):
    """What is to be done about an execution that is over.

    Attributes:
        execution: the execution.
        recorded: whether its end is in the database already, with its handler's own rows.
        accepted: whether its claim still stood then.
    """

    execution: Execution
    recorded: bool = False
    accepted: bool = False


class Claims:
    """What one worker has claimed, and what it has executed and not yet recorded.

    Args:
        storage: the store.
        membership: whose claims they are.
        slot: the worker's record in shared memory.
        lanes: the lanes that it serves.
        heartbeat: seconds between beats.

    Attributes:
        left: returns what is left of the worker's offer, where it executes several tasks at a time.
    """

    def __init__(
        self, storage: Storage, membership: Membership, slot: Slot, lanes: LearnedLanes, heartbeat: float
    ) -> None:
        self._storage = storage
        self._queue = storage.queue
        self._membership = membership
        self._slot = slot
        self._heartbeat = heartbeat
        self.lanes = lanes
        self.left: Callable[[], Mapping[str, float]] | None = None
        self.tally = Tally()
        self.executed: list[Execution] = []
        self.recorded = 0
        self.recorded_at = boottime()
        self._notes = Notes(slot)
        self._overlap = Overlap(self._queue, membership, slot, self._wanted)

    @property
    def is_ahead(self) -> bool:
        """Whether something was claimed, or asked for, that is not held yet."""
        return self._overlap.is_ahead

    def note(self) -> bool:
        """Note in shared memory how the last task ended; False when there is no room."""
        return self._notes.add(self.executed[-1])

    def forget_noted(self) -> None:
        """Forget what was noted: it is recorded."""
        self._notes.clear()

    def next(
        self, limit: int, looked: bool = False, *, ahead: bool = False
    ) -> tuple[tuple[ClaimedTask, ...], ClaimReply | None]:
        """Record what was executed and claim up to `limit` tasks, in one commit.

        Args:
            limit: how many.
            looked: whether somebody has just seen that there is something to claim.
            ahead: whether what comes after these may be claimed, and what was executed be recorded, while they are
                executed.

        Returns:
            The tasks, noted in shared memory as held, and the reply; None when claiming failed (which is logged).

        Raises:
            DatabaseError: results could not be recorded for several leases (which is logged with their ids).
        """
        found = self._claimed_ahead(limit, ahead) if self.is_ahead else None
        asked = boottime() if found is None else found[1]
        reply = found[0] if found else self.record(limit) if self.executed else self._claim(limit, looked)
        if reply is None:
            return (), None
        if ahead and len(reply.tasks) > 1 and not self.is_ahead:
            self._send(limit)
        self._hold(reply.tasks, keep=self._overlap.records)
        self._slot.phase = Phase.CLAIMING
        tasks = self._still_held(reply.tasks, asked)
        if self.executed:
            after = self.record()
            if after.status != WorkerStatus.ACTIVE:
                self.give_back(tasks, "its worker claims nothing more")
                return (), after
        return tasks, reply

    def _claimed_ahead(self, limit: int, ahead: bool) -> tuple[ClaimReply, float] | None:
        """Return what was claimed ahead, if that is to be executed, and when it was asked for.

        What comes after it is sent for as soon as the reply is there, and before it is read: the server need not wait.
        """
        begins = limit > 0 and not self._slot.revoked
        earlier = self._overlap.in_flight
        if ahead and begins:
            self._send(limit)
        for _ in range(earlier):
            self._take_in()
        found = self._overlap.claimed()
        if found is None or begins:
            return found
        # A task before it took long: the keeper has given back what it could see.
        self.give_back(found[0].tasks, "its worker could not begin it soon")
        return None

    def _send(self, limit: int) -> None:
        """Send what was executed, and a claim, without waiting.

        Not where the keeper could not record it either, nor where counts wait that only `record` writes.
        """
        if self.tally.is_full or (self.executed and not self.note()):
            return
        message = self._overlap.message(self.executed, limit)
        if message is not None and self._overlap.send(message):
            self.executed = []

    def _take_in(self) -> None:
        """Account for what was sent; what was not recorded by it is to be recorded as ever."""
        landing = self._overlap.land()
        self.recorded_at = boottime()
        self.executed = [*landing.left, *self.executed]
        self._account(landing.recorded, landing.reply.accepted)

    def _hold(self, tasks: Sequence[ClaimedTask], keep: bool = False) -> None:
        fences = [claimed.fence for claimed in tasks]
        if self._slot.is_concurrent:
            self._slot.take_seats(fences)
        else:
            self._notes.begin(fences, keep)

    def _wanted(self, limit: int) -> tuple[tuple[LaneClaim, ...], int]:
        if not limit:
            return (), 0
        return (self.lanes.to_claim(), limit) if self.left is None else self.lanes.to_claim_within(self.left(), limit)

    def _claim(self, limit: int, looked: bool) -> ClaimReply | None:
        self._slot.enters(Phase.CLAIMING)
        try:
            reply = self._queue.claim(self._membership.claiming(), *self._wanted(limit), looked=looked)
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
        for _ in range(self._overlap.in_flight):
            self._take_in()
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
        if self._slot.is_concurrent:
            self._slot.free_seats([execution.claimed.fence for execution in executed])
        self.tally.note(executed, reply, self.recorded_at)
        self._account(executed, reply.accepted)
        if reply.status != WorkerStatus.ACTIVE and (found := self._overlap.claimed()):
            self.give_back(found[0].tasks, "its worker claims nothing more")
        return reply

    def _finish_and_claim(self, executed: Sequence[Execution], limit: int) -> ClaimReply:
        now = boottime()
        finishes = [execution.finish(now, random.random) for execution in executed]
        wanted = self._wanted(limit)
        record = self._queue.finish_and_claim
        claimant = self._membership.claiming() if limit else self._membership.claimant
        try:
            reply = record(
                claimant,
                finishes,
                *wanted,
                counting=lambda reply: self.tally.due(executed, reply, now),
            )
        except NotCounted as error:
            _log.warning("statistics of tasks were not stored: %s", error)
            reply = record(claimant, finishes, *wanted)
        if reply.tasks:
            reach("worker.claimed")
        return reply

    def _account(self, executed: Sequence[Execution], accepted: frozenset[Fence]) -> None:
        self.recorded += len(executed)
        # Each execution has a fence of its own.
        known: frozenset[Fence] | None = None
        if len(accepted) < len(executed):
            taken = self._notes.recorded_by_keeper - accepted
            self.tally.add(one for one in executed if one.claimed.fence in taken)
            known = accepted | taken
        done = 0
        for execution in executed:
            claimed = execution.claimed
            if known is not None and claimed.fence not in known:
                _log.warning(
                    "claim %d of task %d was lost: its result is dropped",
                    claimed.claim_token,
                    claimed.task_id,
                    extra={"task_id": claimed.task_id},
                )
                continue
            done += self._count(execution)
        if done:
            self._slot.done += done

    def _count(self, execution: Execution) -> bool:
        """Count an execution, and tell of its failure; return whether it is a success, which is left to the caller."""
        if isinstance(execution.outcome, Failure):
            self._slot.failed += 1
            _tell_failure(execution.claimed, execution.outcome)
        return execution.succeeded

    def completion(self, execution: Execution, own: OwnTask | None) -> Completion:
        """Close the transaction that a handler left open, if it did: a success is recorded in it, or it is undone.

        Called in the handler's own thread, which is the transaction's.
        """
        if own is None or not own.has_transaction:
            return Completion(execution)
        if not execution.succeeded:
            own.roll_back()
            return Completion(execution)
        try:
            accepted = own.complete(execution.finish(boottime(), random.random))
        except Exception as error:
            reason = describe(error)
            _log.warning("the transaction of task %d was undone: %s", execution.claimed.task_id, reason)
            failure = Failure(type(error).__name__, f"its transaction could not be committed: {reason}")
            return Completion(execution._replace(outcome=failure))
        return Completion(execution, recorded=True, accepted=accepted)

    def take(self, completion: Completion) -> bool:
        """Take over an execution that is over; return whether it is still to be recorded."""
        execution = completion.execution
        if not completion.recorded:
            self.executed.append(execution)
            return True
        self.recorded += 1
        if self._slot.is_concurrent:
            self._slot.free_seats([execution.claimed.fence])
        if completion.accepted:
            self.tally.add([execution])
            self._slot.done += self._count(execution)
        else:
            task_id = execution.claimed.task_id
            _log.warning("claim of task %d was lost: its result and its transaction are dropped", task_id)
        return False

    def own_task(self, claimed: ClaimedTask, shares_thread: bool = False) -> OwnTask:
        """Return the rows of a claimed task, for its handler; see `OwnTask`."""
        return OwnTask(
            self._storage, self._membership.claimant, claimed, self._membership.patiently, shares_thread=shares_thread
        )

    def _still_held(self, tasks: tuple[ClaimedTask, ...], asked: float) -> tuple[ClaimedTask, ...]:
        """Return the tasks that are still ours: a claim whose reply took long may have been given back meanwhile."""
        if not tasks or boottime() - asked <= self._heartbeat / 2:
            return tasks
        held = tuple(claimed for claimed in tasks if self._holds(claimed))
        if len(held) < len(tasks):
            if self._slot.is_concurrent:
                self._slot.free_seats({claimed.fence for claimed in tasks} - {claimed.fence for claimed in held})
            else:
                self._notes.hold([claimed.fence for claimed in held])
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


def _tell_failure(claimed: ClaimedTask, failure: Failure) -> None:
    """Log that an attempt has failed; not in the exception's words, which may be those of the payload."""
    _log.warning(
        "task %d (%s) failed: %s, attempt %d of %d%s",
        claimed.task_id,
        claimed.task,
        failure.kind,
        claimed.attempt,
        claimed.max_attempts,
        "" if claimed.has_attempts_left and not failure.final else ", for good",
        extra={"task_id": claimed.task_id},
    )
