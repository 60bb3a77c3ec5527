"""Adding tasks: defaults, lanes, ids, keys, dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.domain.alike import TasksAlike, runs
from fleet.domain.task import BlockedReason, Enqueued, NewTask
from fleet.storage.database import Transaction
from fleet.storage.queue import batches
from fleet.storage.queue.edges import Edges
from fleet.storage.queue.entry import Entry
from fleet.storage.queue.inserting import insert_alike, insert_each, insert_keyed, insert_run, new_ids
from fleet.storage.sql import Row

_LONG = 3
"""From so many tasks alike on, a statement of their own is worth it."""


@dataclass(slots=True)
class _Run:
    """Tasks of one call that follow each other and are alike.

    Attributes:
        tasks: the tasks.
        row: what their rows share.
        ids: the id of each, or of the task whose key it met.
        met: which of them, by place, met one.
    """

    tasks: TasksAlike
    row: Row
    ids: Sequence[int]
    met: frozenset[int] = frozenset()

    @property
    def waits_for_slot(self) -> bool:
        """Whether any of them is new and waits for its key's limit."""
        return self.row["blocked_reason"] == BlockedReason.LIMIT and len(self.met) < len(self.ids)

    def rows(self) -> Iterator[tuple[Row, int, str]]:
        """Yield row, id and payload of each."""
        for task_id, payload in zip(self.ids, self.tasks.payloads, strict=True):
            yield self.row, task_id, payload


def add_tasks(transaction: Transaction, tasks: Sequence[NewTask], *, blocked: BlockedReason | None = None) -> Enqueued:
    """Add tasks in the open transaction.

    Args:
        transaction: the open transaction.
        tasks: what to add; those that are alike and follow each other cost least.
        blocked: what all of them wait for, until somebody lets them in.

    Returns:
        Their ids in input order.

    Raises:
        UsageError: too many capability sets, or a task depends on what is not there.
        NotFound, ConflictError: a batch is not there, or closed.
    """
    alike = tuple(runs(tasks))
    batches.check_open(transaction, (run.template.batch_id for run in alike if run.template.batch_id is not None))
    entry = Entry(transaction, {run.template.task for run in alike}, blocked)
    added = _added(transaction, alike, [entry.row(run.template) for run in alike])
    _connect(transaction, entry, added)
    entry.gate.admit({run.row["concurrency_key"] for run in added if run.waits_for_slot})
    if len(added) == 1:
        return Enqueued(tuple(added[0].ids), tuple(_existing(added)))
    return Enqueued(tuple(task_id for run in added for task_id in run.ids), tuple(_existing(added)))


def _added(transaction: Transaction, alike: Sequence[TasksAlike], rows: Sequence[Row]) -> list[_Run]:
    """Insert all rows; a task whose key was met gets the id of the one that has it."""
    if len(alike) == 1 and len(alike[0]) >= _LONG and not _is_keyed(rows[0]):
        return [_Run(alike[0], rows[0], insert_run(transaction, rows[0], alike[0].payloads))]
    added = _placed(alike, rows, new_ids(transaction, sum(map(len, alike))))
    short: list[_Run] = []
    for run in added:
        if _is_keyed(run.row):
            _insert_keyed(transaction, run)
        elif len(run.ids) >= _LONG:
            insert_alike(transaction, run.row, run.ids, run.tasks.payloads)
        else:
            short.append(run)
    insert_each(transaction, [row for run in short for row in run.rows()])
    return added


def _placed(alike: Sequence[TasksAlike], rows: Sequence[Row], ids: Sequence[int]) -> list[_Run]:
    """Give each run its part of the ids: the order in which tasks are claimed is that of the call."""
    placed, start = [], 0
    for tasks, row in zip(alike, rows, strict=True):
        placed.append(_Run(tasks, row, ids[start : start + len(tasks)]))
        start += len(tasks)
    return placed


def _is_keyed(row: Row) -> bool:
    return bool(row["dedupe_key"] or row["idempotency_key"])


def _insert_keyed(transaction: Transaction, run: _Run) -> None:
    given = run.ids
    run.ids = [insert_keyed(transaction, *row) for row in run.rows()]
    run.met = frozenset(place for place, task_id in enumerate(run.ids) if task_id != given[place])


def _connect(transaction: Transaction, entry: Entry, added: Sequence[_Run]) -> None:
    """Store what the new tasks depend on."""
    edges = Edges(transaction)
    for run in added:
        template = run.tasks.template
        if template.depends_on or template.ref is not None:
            for place, task_id in enumerate(run.ids):
                edges.note(template, task_id, is_new=place not in run.met)
    edges.write(entry.gate)


def _existing(added: Sequence[_Run]) -> Iterator[int]:
    for run in added:
        for place in sorted(run.met):
            yield run.ids[place]
