"""The queue of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fleet.domain.execution import AttemptRecord, Claimant, ClaimReply, Fence, Finish
from fleet.domain.lanes import Lane, LaneClaim
from fleet.domain.spreading import Spreading
from fleet.domain.task import (
    Answer,
    Enqueued,
    HandlerDefaults,
    NewTask,
    ParentResult,
    QueueCounts,
    TaskFilter,
    TaskRecord,
)
from fleet.storage.interfaces.control import MinuteCount
from fleet.storage.interfaces.transaction import Transaction

NEWEST_TASKS = TaskFilter()


class Ahead(Protocol):
    """Ends and a claim of more than one task, as one transaction, sent without waiting for the reply.

    It writes only ends from which nothing follows, and claims only what may be claimed together: perhaps nothing. The
    statistics of the ends are part of it.
    """

    def send(self) -> bool:
        """Send it, once; whoever calls the store next waits for its reply.

        Returns:
            False where nothing can be sent so: nothing was, and `finish_and_claim` is to be called.

        Raises:
            DatabaseError: nothing was sent.
        """

    def count(self) -> int:
        """Wait for the reply; return how many tasks it brings, 0 where there is an error instead."""

    def reply(self) -> ClaimReply | None:
        """Wait for the reply; `accepted` names the ends that were written, any other is to be written again.

        Returns:
            The reply; None where nothing of it was done.

        Raises:
            DatabaseError: nobody knows whether it was done; writing the ends again changes nothing that it did.
        """


class WorkQueue(Protocol):
    """The queue of tasks."""

    def enqueue(self, tasks: Sequence[NewTask], *, transaction: Transaction | None = None) -> Enqueued:
        """Add tasks, all or none, durably (synchronous=FULL) unless inside the caller's transaction.

        What a task leaves open is taken from its handler's stored defaults, then from the fleet's.

        Raises:
            UsageError: a capability set beyond the allowed number of distinct ones.
        """

    def lanes(self, after: int = 0) -> tuple[Lane, ...]:
        """Return lanes with a larger id than `after`, by id."""

    def claim(
        self, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int = 1, *, looked: bool = False
    ) -> ClaimReply:
        """Claim up to `limit` tasks of these (lane id, tier) in order of tier, rank, id.

        A read decides whether there is anything to claim; only then is the write lock taken. Who was woken by somebody
        who has `looked` needs no other look where that costs turns to a server and back. The claiming statement
        itself checks that the incarnation is active and not paused. With `limit` > 1 only tasks with attempts to spare
        and no interruptions come in a batch (their `started_at` stays NULL); any other comes alone, and one that comes
        alone is stamped as started.
        """

    def finish_and_claim(
        self,
        claimant: Claimant,
        finishes: Sequence[Finish],
        lanes: Sequence[LaneClaim],
        limit: int = 1,
        *,
        counting: Callable[[ClaimReply], Sequence[MinuteCount]] | None = None,
        transaction: Transaction | None = None,
    ) -> ClaimReply:
        """Write how claimed tasks ended and claim the next, in one commit; `limit` 0 claims nothing.

        `accepted` names the fences that were written; a finish whose claim is gone changes nothing. What follows from
        an end is part of the same commit: its key's next task, its dependents, its batch, and the statistics
        that `counting` says of the reply; it may be called again where the transaction is run again. Inside
        `transaction` (a handler's own) nothing is committed here.
        """

    def prepare_ahead(
        self, claimant: Claimant, finishes: Sequence[Finish], lanes: Sequence[LaneClaim], limit: int
    ) -> Ahead | None:
        """Return ends and a claim of up to `limit` tasks, to be sent; nothing is asked of the database here.

        Returns:
            What is to be sent; None where something is out of the ordinary: `finish_and_claim` is to be called.
        """

    def start(self, claimant: Claimant, fence: Fence) -> bool:
        """Stamp `started_at` of a batched task whose execution lasts; return False when the claim is gone."""

    def release(self, incarnation: str, fences: Sequence[Fence], *, interrupted: bool, reason: str) -> tuple[int, ...]:
        """Give tasks back without spending the attempt; return the ids that were still held.

        Args:
            incarnation: the holder's life.
            fences: the claims.
            interrupted: whether an execution was ended from outside: counts as an interruption, and a task with more
                than ten of them ends `failed/interrupted_too_often`.
            reason: for the event log.
        """

    def release_later(self, claimant: Claimant, lasting: Fence, reason: str) -> tuple[int, ...]:
        """Give back what a worker has claimed later than the task that it executes; return the ids.

        Nothing is where it does not execute that task any more. What it has claimed in the same millisecond counts as
        later: what it has executed before must be recorded.

        Args:
            claimant: the worker.
            lasting: what it executes, and goes on executing.
            reason: for the event log.
        """

    def progress(self, incarnation: str, fence: Fence, fraction: float | None, text: str | None) -> bool:
        """Store a running task's progress (0 to 1, and a line); return False when the claim is gone."""

    def save_step(self, incarnation: str, fence: Fence, name: str, value_json: str) -> bool:
        """Store (or replace) a named step of a running task; return False when the claim is gone."""

    def steps(self, task_id: int) -> Mapping[str, str]:
        """Return a task's stored steps as JSON texts, by name; they outlive release, retry and worker."""

    def parents(self, task_id: int) -> tuple[ParentResult, ...]:
        """Return the tasks that a task depends on, by id, with their results."""

    def attempts(self, task_id: int) -> tuple[AttemptRecord, ...]:
        """Return a task's executions that did not succeed, oldest first."""

    def advance(self, limit: int = 500) -> int:
        """Do what has become due, in one bounded transaction; return how many tasks changed.

        Due `scheduled` tasks become `pending` (or `blocked` by their key's limit), tasks past their deadline fail, and
        the dependents of tasks with very many of them are let go. Takes the write lock only when there is any of it.
        """

    def sweep(self, limit: int = 500) -> int:
        """Look at the next blocked tasks, and let go those that nothing holds any more; return how many changed.

        Everything is let go in the transaction that frees it; the sweep mends what somebody's own SQL has changed. It
        goes round in bounded steps; it also blocks what a lowered limit leaves too much of.
        """

    def next_due_in(self) -> float | None:
        """Return seconds until something becomes due by itself (0 when overdue), None when nothing will.

        That is a scheduled task, a tick of a schedule, or the end of a queue's pause.
        """

    def claimable(self, lanes: Sequence[LaneClaim], limit: int) -> int:
        """Return how many tasks of these lanes could be claimed, counting no further than `limit`."""

    def claimable_by(self, spreading: Spreading, lanes: Sequence[LaneClaim], limit: int) -> tuple[int, float | None]:
        """Return how many tasks of these lanes workers of this kind would claim now, counting no further than `limit`.

        What an idle worker of their pool matches better does not count while it is left to that one; the second value
        is in how many seconds the first of it does, None where nothing is left.
        """

    def unfinished(self, lanes: Sequence[int], horizon: float) -> int:
        """Return how many tasks of these lanes are pending, running, held by a limit, or due within `horizon` seconds.

        Tasks of paused queues and tasks that wait for others do not count.
        """

    def cancel(self, task_ids: Sequence[int]) -> tuple[Answer, ...]:
        """Cancel tasks: at once what does not run; of what runs, ask its holder to stop. Answers in input order.

        The request sticks: a running one that is asked ends `cancelled` unless its handler returns first.
        """

    def retry(self, task_ids: Sequence[int]) -> tuple[Answer, ...]:
        """Put failed and cancelled tasks back into the queue with all their attempts; answers in input order."""

    def retry_failed(
        self,
        *,
        error_kind: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> tuple[Answer, ...]:
        """Retry the next failed tasks that match, by id, at most `limit`; a step of a longer work.

        `after` is the last id that was answered before: repeat with it until nothing is returned.
        """

    def cancel_requests(self, workers: Sequence[str]) -> tuple[tuple[str, Fence], ...]:
        """Return (worker id, fence) of tasks that run at these workers and are to be cancelled."""

    def get(self, task_id: int) -> TaskRecord | None:
        """Return one task, payload included."""

    def list(self, filter: TaskFilter = NEWEST_TASKS) -> tuple[TaskRecord, ...]:
        """Return the tasks that match, newest first, without payload and result."""

    def counts(self) -> tuple[QueueCounts, ...]:
        """Return open tasks by queue, handler and requirement."""

    def open_totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each open status, exactly; finished ones are not looked at."""

    def totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each status; reads every row."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete finished tasks that ended more than `older_than` seconds ago; return how many.

        One bounded stretch of ids a call, by a stored cursor. Kept are tasks that an open one depends on, and those of
        a batch that has not ended.
        """

    def prune_after(self, after: int, older_than: float, limit: int = 1_000) -> tuple[int, int]:
        """Prune up to `limit` of the ids after `after`; return how many went, and where to go on (0: that was all)."""

    def declare_handlers(self, handlers: Iterable[HandlerDefaults]) -> None:
        """Store handler defaults that differ from what is stored (read first: idle starts do not write)."""

    def handlers(self) -> tuple[HandlerDefaults, ...]:
        """Return the stored handler defaults, by name."""
