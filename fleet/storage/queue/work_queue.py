"""The queue of tasks in SQL: verbs, each one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleet.domain.alike import runs
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
from fleet.domain.worker import WorkerStatus
from fleet.errors import NotCounted
from fleet.storage import minutes
from fleet.storage.database import Database, Transaction, original
from fleet.storage.interfaces import NEWEST_TASKS, MinuteCount
from fleet.storage.parameters import by_id
from fleet.storage.queue import (
    advancing,
    ahead,
    claiming,
    counting,
    dependencies,
    handlers,
    history,
    orders,
    pruning,
    steps,
)
from fleet.storage.queue import spreading as spread
from fleet.storage.queue.enqueuing import add_tasks
from fleet.storage.queue.finishing import write_finishes
from fleet.storage.queue.precedents import Precedents
from fleet.storage.queue.release import release, release_later
from fleet.storage.rows import TASK_COLUMNS, lane_of, task_of
from fleet.storage.sql import Statement

_LANES = Statement(
    """SELECT lane_id, queue, task, capability_key, assigned_worker FROM claim_lane
    WHERE lane_id > :after ORDER BY lane_id"""
)
_START = by_id(
    """UPDATE work_queue SET started_at = coalesce(started_at, :now)
    WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation"""
)
_PROGRESS = by_id(
    """UPDATE work_queue SET progress = :fraction, progress_text = :text
    WHERE id = :id AND claim_token = :token AND status = 'running' AND incarnation = :incarnation"""
)

_GET = Statement(
    f"""SELECT {TASK_COLUMNS}, q.result_json,
        coalesce(q.payload_json, (SELECT p.payload_json FROM work_payload p WHERE p.task_id = q.id)) AS payload_json
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id"""
)


class SqlWorkQueue:
    """`WorkQueue` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._precedents = Precedents(database)

    def enqueue(self, tasks: Sequence[NewTask], *, transaction: Any = None) -> Enqueued:
        """Add tasks; see `WorkQueue.enqueue`. `transaction` may be a SQLAlchemy connection of the caller's."""
        if not tasks:
            return Enqueued(())
        if transaction is not None:
            return add_tasks(self._database.within(transaction), tasks)
        if len(tasks) == 1:
            return self._enqueue_one(tasks)
        return self._database.write(lambda own: add_tasks(own, tasks), durable=True)

    def _enqueue_one(self, tasks: Sequence[NewTask]) -> Enqueued:
        run = next(runs(tasks))
        added = self._precedents.follow(run.template, run.payloads[0])
        if added is not None:
            return Enqueued((added,))

        def add(own: Transaction) -> Enqueued:
            enqueued = add_tasks(own, run)
            self._precedents.set(own, run.template)
            return enqueued

        return self._database.write(add, durable=True)

    def lanes(self, after: int = 0) -> tuple[Lane, ...]:
        """Return lanes with a larger id than `after`."""
        rows = self._database.read(lambda transaction: transaction.rows(_LANES, after=after))
        return tuple(lane_of(row) for row in rows)

    def claim(
        self, claimant: Claimant, lanes: Sequence[LaneClaim], limit: int = 1, *, looked: bool = False
    ) -> ClaimReply:
        """Claim up to `limit` tasks, after a read that says whether there are any."""
        if looked and limit and self._database.rows_are_locked:
            return self.finish_and_claim(claimant, (), lanes, limit)
        reply, may_claim, worth_it = self._database.read(lambda transaction: _probe(transaction, claimant, lanes))
        if limit < 1 or not may_claim or not (worth_it or self.advance()):
            return reply
        return self.finish_and_claim(claimant, (), lanes, limit)

    def finish_and_claim(
        self,
        claimant: Claimant,
        finishes: Sequence[Finish],
        lanes: Sequence[LaneClaim],
        limit: int = 1,
        *,
        counting: Callable[[ClaimReply], Sequence[MinuteCount]] | None = None,
        transaction: Any = None,
    ) -> ClaimReply:
        """Write how tasks ended and claim the next, in one commit."""

        def work(own: Transaction) -> ClaimReply:
            reply = _finish_and_claim(own, claimant, finishes, lanes, limit)
            if counting is not None and (counts := counting(reply)):
                self._count(own, counts)
            return reply

        return self._database.write(work) if transaction is None else work(self._database.within(transaction))

    def prepare_ahead(
        self, claimant: Claimant, finishes: Sequence[Finish], lanes: Sequence[LaneClaim], limit: int
    ) -> ahead.Ahead | None:
        """Return ends and a claim, ready to be sent without waiting for the reply."""
        return ahead.prepare(self._database, claimant, finishes, lanes, limit)

    def _count(self, transaction: Transaction, counts: Sequence[MinuteCount]) -> None:
        try:
            minutes.add(transaction, counts)
        except Exception as error:
            if self._database.is_busy(error):
                raise
            raise NotCounted(str(original(error))) from error

    def start(self, claimant: Claimant, fence: Fence) -> bool:
        """Stamp `started_at` of a batched task."""
        return self._fenced(_START, claimant.incarnation, fence)

    def release(self, incarnation: str, fences: Sequence[Fence], *, interrupted: bool, reason: str) -> tuple[int, ...]:
        """Give tasks back without spending the attempt."""
        return self._database.write(
            lambda transaction: release(transaction, incarnation, fences, interrupted=interrupted, reason=reason)
        )

    def release_later(self, claimant: Claimant, lasting: Fence, reason: str) -> tuple[int, ...]:
        """Give back what was claimed later than what is executed."""
        return self._database.write(lambda transaction: release_later(transaction, claimant, lasting, reason))

    def progress(self, incarnation: str, fence: Fence, fraction: float | None, text: str | None) -> bool:
        """Store a running task's progress."""
        return self._fenced(_PROGRESS, incarnation, fence, fraction=fraction, text=text)

    def _fenced(
        self, statement: Statement, incarnation: str, fence: Fence, *, durable: bool = False, **values: Any
    ) -> bool:
        def write(transaction: Transaction) -> bool:
            return bool(
                transaction.touched(
                    statement,
                    id=fence.task_id,
                    token=fence.claim_token,
                    incarnation=incarnation,
                    now=transaction.now,
                    **values,
                )
            )

        return self._database.write(write, durable=durable)

    def save_step(self, incarnation: str, fence: Fence, name: str, value_json: str) -> bool:
        """Store a named step of a running task, durably."""
        return self._fenced(steps.SAVE, incarnation, fence, durable=True, name=name, value=value_json)

    def steps(self, task_id: int) -> Mapping[str, str]:
        """Return a task's stored steps, by name."""
        return dict(self._database.read(lambda transaction: transaction.rows(steps.OF_TASK, task_id=task_id)))

    def parents(self, task_id: int) -> tuple[ParentResult, ...]:
        """Return the tasks that a task depends on, with their results."""
        return self._database.read(lambda transaction: dependencies.parents_of(transaction, task_id))

    def attempts(self, task_id: int) -> tuple[AttemptRecord, ...]:
        """Return a task's executions that did not succeed, oldest first."""
        return self._database.read(lambda transaction: history.of_task(transaction, task_id))

    def advance(self, limit: int = 500) -> int:
        """Do what has become due."""
        return advancing.advance(self._database, limit)

    def sweep(self, limit: int = 500) -> int:
        """Mend what strangers' SQL left behind."""
        return advancing.sweep(self._database, limit)

    def next_due_in(self) -> float | None:
        """Return seconds until something becomes due by itself."""
        return self._database.read(advancing.next_due_in)

    def claimable(self, lanes: Sequence[LaneClaim], limit: int) -> int:
        """Return how many tasks of these lanes could be claimed, counting no further than `limit`."""
        if self._database.rows_are_locked:
            return self._database.glance(lambda runner: counting.claimable_now(runner, lanes, limit))
        return self._database.read(lambda transaction: counting.claimable(transaction, lanes, limit))

    def claimable_by(self, spreading: Spreading, lanes: Sequence[LaneClaim], limit: int) -> tuple[int, float | None]:
        """Return how many tasks of these lanes workers of this kind would claim, and when to look again."""
        return self._database.read(lambda transaction: spread.claimable(transaction, spreading, lanes, limit))

    def unfinished(self, lanes: Sequence[int], horizon: float) -> int:
        """Return how many tasks of these lanes are still to be waited for."""
        return self._database.read(lambda transaction: counting.unfinished(transaction, lanes, horizon))

    def cancel(self, task_ids: Sequence[int]) -> tuple[Answer, ...]:
        """Cancel tasks, or ask for their end."""
        found = self._database.write(lambda transaction: orders.cancel(transaction, task_ids))
        return tuple(found[task_id] for task_id in task_ids)

    def retry(self, task_ids: Sequence[int]) -> tuple[Answer, ...]:
        """Put ended tasks back into the queue."""
        found = self._database.write(lambda transaction: orders.retry(transaction, task_ids), durable=True)
        return tuple(found[task_id] for task_id in task_ids)

    def retry_failed(
        self,
        *,
        error_kind: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> tuple[Answer, ...]:
        """Retry the next failed tasks that match."""

        def work(transaction: Transaction) -> tuple[Answer, ...]:
            found = orders.failed(transaction, after, limit, error_kind, task, queue)
            answers = orders.retry(transaction, found)
            return tuple(answers[task_id] for task_id in found)

        return self._database.write(work, durable=True)

    def cancel_requests(self, workers: Sequence[str]) -> tuple[tuple[str, Fence], ...]:
        """Return (worker id, fence) of tasks that run at these workers and are to be cancelled."""
        names = json.dumps(sorted(workers))
        rows = self._database.read(lambda transaction: orders.requests(transaction, names))
        return tuple((worker, Fence(task_id, token)) for worker, task_id, token in rows)

    def get(self, task_id: int) -> TaskRecord | None:
        """Return one task, payload included."""
        row = self._database.read(lambda transaction: transaction.record(_GET, id=task_id))
        return task_of(row) if row else None

    def list(self, filter: TaskFilter = NEWEST_TASKS) -> tuple[TaskRecord, ...]:
        """Return the tasks that match, newest first."""
        return self._database.read(lambda transaction: counting.tasks(transaction, filter))

    def counts(self) -> tuple[QueueCounts, ...]:
        """Return open tasks by queue, handler and requirement."""
        return self._database.read(counting.counts)

    def open_totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each open status."""
        return self._database.read(counting.open_totals)

    def totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each status; reads every row."""
        return self._database.read(counting.totals)

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete finished tasks that ended long ago, a bounded stretch of ids at a time."""
        return pruning.prune(self._database, older_than, limit)

    def prune_after(self, after: int, older_than: float, limit: int = 1_000) -> tuple[int, int]:
        """Prune the next stretch of ids after `after`."""
        return pruning.prune_after(self._database, after, older_than, limit)

    def declare_handlers(self, declared: Iterable[HandlerDefaults]) -> None:
        """Store handler defaults that differ from what is stored."""
        wanted = {handler.name: handler for handler in declared}
        stored = self._database.read(lambda transaction: handlers.defaults_of(transaction, wanted))
        changed = [
            handler
            for name, handler in wanted.items()
            if name not in stored or handlers.normal(stored[name]) != handlers.normal(handler)
        ]
        if changed:
            self._database.write(lambda transaction: handlers.store_defaults(transaction, changed))

    def handlers(self) -> tuple[HandlerDefaults, ...]:
        """Return the stored handler defaults, by name."""
        return self._database.read(handlers.all_defaults)


def _probe(transaction: Transaction, claimant: Claimant, lanes: Sequence[LaneClaim]) -> tuple[ClaimReply, bool, bool]:
    standing = claiming.standing(transaction, claimant, locked=False)
    reply = ClaimReply(max_lane_id=claiming.max_lane_id(transaction, standing), status=standing.status)
    if not standing.may_claim:
        return reply, False, False
    worth_it, left_for = spread.anything_to_claim(transaction, claimant, standing.open(lanes))
    return reply if left_for is None else replace(reply, left_for=left_for), True, worth_it


def _finish_and_claim(
    transaction: Transaction,
    claimant: Claimant,
    finishes: Sequence[Finish],
    lanes: Sequence[LaneClaim],
    limit: int,
) -> ClaimReply:
    if limit == 1 and transaction.is_sqlite and spread.is_plain(claimant, limit):
        accepted = write_finishes(transaction, claimant.incarnation, finishes)
        plain = claiming.take_plain(transaction, claimant, lanes)
        if plain is not None:
            return ClaimReply((plain[0],), accepted, plain[1], WorkerStatus.ACTIVE)
        standing = claiming.standing(transaction, claimant, locked=True)
    else:
        # Registry before tasks: the lock order everywhere.
        standing = claiming.standing(transaction, claimant, locked=True)
        accepted = write_finishes(transaction, claimant.incarnation, finishes)
    if not standing.may_claim:
        return ClaimReply((), accepted, claiming.max_lane_id(transaction, standing), standing.status)
    tasks, left_for = spread.take(transaction, claimant, standing.open(lanes), limit)
    return ClaimReply(tasks, accepted, claiming.max_lane_id(transaction, standing), standing.status, left_for)
