"""Tasks that wait for others: an edge from each parent to its child, satisfied when the parent has ended well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.domain.task import ParentPolicy, ParentResult, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import OPEN, leaving
from fleet.storage.parameters import by_ids, ids_json
from fleet.storage.queue.changed import CHANGED_COLUMNS, Changed
from fleet.storage.queue.entering import Entrant, enter
from fleet.storage.queue.limits import KeyGate
from fleet.storage.sql import Statement, as_time

_PARENT = Statement("SELECT status FROM work_queue WHERE id = :id")
_EDGES = Statement(
    """SELECT child, policy FROM work_dependency WHERE parent = :parent AND satisfied = false
    ORDER BY child LIMIT :limit"""
)
# In id order, and before readiness is asked in a statement of its own: of two parents that end at once on PostgreSQL,
# the later one sees the edge of the earlier.
_LOCK = by_ids("SELECT 1", "SELECT 1 FROM work_queue WHERE id IN {ids} ORDER BY id FOR UPDATE")
_SATISFY = by_ids("UPDATE work_dependency SET satisfied = true WHERE parent = :parent AND child IN {ids}")
_READY = by_ids(
    """SELECT q.id, q.available_at, q.concurrency_key FROM work_queue q
    WHERE q.id IN {ids} AND q.status = 'blocked' AND q.blocked_reason = 'parents'
        AND NOT EXISTS (SELECT 1 FROM work_dependency d WHERE d.child = q.id AND d.satisfied = false)"""
)
_END = """UPDATE work_queue SET status = :status, blocked_reason = NULL, error = :error, error_kind = :kind,
        finished_at = :now
    WHERE id IN {ids} AND """ + leaving(TaskStatus.BLOCKED, to=(TaskStatus.FAILED, TaskStatus.CANCELLED))
_END_CHILDREN = by_ids(f"{_END} RETURNING {CHANGED_COLUMNS}")

_UNRELEASED = Statement("SELECT task_id FROM work_release ORDER BY task_id LIMIT 100")
_KEEP = Statement("INSERT INTO work_release (task_id) VALUES (:id) ON CONFLICT DO NOTHING")
_FORGET = Statement("DELETE FROM work_release WHERE task_id = :id")

_INSERT = Statement(
    """INSERT INTO work_dependency (parent, child, policy, satisfied) VALUES (:parent, :child, :policy, false)
    ON CONFLICT DO NOTHING"""
)
# A parent that is about to end waits for these edges, and then finds them.
_PARENTS_THERE = by_ids(
    "SELECT id, status FROM work_queue WHERE id IN {ids}",
    "SELECT id, status FROM work_queue WHERE id IN {ids} ORDER BY id FOR SHARE",
)
# One by one on a server: it would read all edges there are, where its statistics are from a time when there were few.
_AWAITED = by_ids(
    "SELECT DISTINCT parent FROM work_dependency WHERE parent IN {ids} AND satisfied = false",
    """SELECT f.id FROM {ids} AS f (id) CROSS JOIN LATERAL (
        SELECT 1 FROM work_dependency d WHERE d.parent = f.id AND d.satisfied = false LIMIT 1) AS awaited""",
)
_PARENTS_OF = Statement(
    """SELECT q.id, q.task, q.status, q.result_json, q.error FROM work_dependency d JOIN work_queue q ON q.id = d.parent
    WHERE d.child = :child ORDER BY q.id"""
)
# Whoever waits again holds its open parents: one that ends meanwhile ends before, or finds the edge.
_OPEN_PARENTS = by_ids(
    "SELECT 1",
    f"""SELECT 1 FROM work_queue WHERE {OPEN} AND id IN (SELECT parent FROM work_dependency WHERE child IN {{ids}})
    ORDER BY id FOR SHARE""",
)
_WAIT_AGAIN = Statement(
    f"""UPDATE work_dependency SET satisfied = false WHERE child = :child AND satisfied = true
        AND EXISTS (SELECT 1 FROM work_queue p WHERE p.id = work_dependency.parent AND p.{OPEN})"""
)
_WAITS = Statement("SELECT 1 FROM work_dependency WHERE child = :child AND satisfied = false LIMIT 1")
_FORGET_EDGES = (
    by_ids("DELETE FROM work_dependency WHERE parent IN {ids}"),
    by_ids("DELETE FROM work_dependency WHERE child IN {ids}"),
    by_ids("DELETE FROM work_release WHERE task_id IN {ids}"),
)
_ENDED_PARENTS = by_ids(
    """SELECT DISTINCT d.parent FROM work_dependency d LEFT JOIN work_queue p ON p.id = d.parent
    WHERE d.child IN {ids} AND d.satisfied = false
        AND (p.id IS NULL OR p.status IN ('done', 'failed', 'cancelled'))"""
)


@dataclass(frozen=True, slots=True)
class Released:
    """What letting go a task's dependents did.

    Attributes:
        count: how many edges were dealt with.
        ended: the dependents that ended because of it.
    """

    count: int
    ended: Sequence[Changed] = ()


def release(transaction: Transaction, gate: KeyGate, parent: int, limit: int) -> Released:
    """Let go up to `limit` dependents of a task that has ended; the rest is remembered for `unreleased`.

    A parent that is no longer there counts as cancelled.
    """
    edges = transaction.rows(_EDGES, parent=parent, limit=limit + 1)
    if len(edges) > limit:
        transaction.rows(_KEEP, id=parent)
        edges = edges[:limit]
    else:
        transaction.rows(_FORGET, id=parent)
    if not edges:
        return Released(0)
    status = TaskStatus(transaction.value(_PARENT, id=parent) or TaskStatus.CANCELLED)
    children = ids_json(child for child, _ in edges)
    transaction.rows(_LOCK, ids=children)
    transaction.rows(_SATISFY, parent=parent, ids=children)
    ended = [] if status is TaskStatus.DONE else _end_children(transaction, parent, status, edges)
    _enter_ready(transaction, gate, children)
    return Released(len(edges), ended)


def _end_children(
    transaction: Transaction, parent: int, status: TaskStatus, edges: Iterable[tuple[int, str]]
) -> list[Changed]:
    """End those whose policy says so, when a parent has ended without success."""
    ended: list[Changed] = []
    for policy, after in ((ParentPolicy.CANCEL, TaskStatus.CANCELLED), (ParentPolicy.FAIL, TaskStatus.FAILED)):
        children = [child for child, wanted in edges if wanted == policy]
        if children:
            rows = transaction.rows(
                _END_CHILDREN,
                ids=ids_json(children),
                status=str(after),
                error=f"task {parent}, which it depends on, is {status}",
                kind=f"parent_{status}",
                now=transaction.now,
            )
            ended += map(Changed.of, rows)
    return ended


def _enter_ready(transaction: Transaction, gate: KeyGate, children: str) -> int:
    ready = transaction.rows(_READY, ids=children)
    return enter(transaction, gate, (Entrant(task_id, as_time(at), key) for task_id, at, key in ready))


def unreleased(transaction: Transaction) -> list[int]:
    """Return tasks that have ended and have dependents still to be let go, by id."""
    return [row[0] for row in transaction.rows(_UNRELEASED)]


def statuses_of(transaction: Transaction, parents: Iterable[int]) -> Mapping[int, TaskStatus]:
    """Return the statuses of those of these tasks that exist; they cannot end before this transaction does."""
    rows = transaction.rows(_PARENTS_THERE, ids=ids_json(sorted(set(parents))))
    return {task_id: TaskStatus(status) for task_id, status in rows}


def add_edges(transaction: Transaction, edges: Sequence[tuple[int, int, ParentPolicy]]) -> None:
    """Add (parent, child, policy) edges."""
    transaction.many(
        _INSERT, [{"parent": parent, "child": child, "policy": str(policy)} for parent, child, policy in sorted(edges)]
    )


def hold_parents(transaction: Transaction, children: Iterable[int]) -> None:
    """Keep the open parents of these tasks from ending before this transaction does."""
    transaction.rows(_OPEN_PARENTS, ids=ids_json(sorted(children)))


def waits(transaction: Transaction, child: int) -> bool:
    """Return whether a task has parents to wait for: open ones, among them those that are open again."""
    transaction.rows(_WAIT_AGAIN, child=child)
    return bool(transaction.rows(_WAITS, child=child))


def parents_among(transaction: Transaction, task_ids: Iterable[int]) -> frozenset[int]:
    """Return those of these tasks that others still wait for, as a statement of its own sees it."""
    return frozenset(row[0] for row in transaction.rows(_AWAITED, ids=ids_json(task_ids)))


def parents_of(transaction: Transaction, child: int) -> tuple[ParentResult, ...]:
    """Return the tasks that a task depends on, by id; pruned ones are missing."""
    rows = transaction.rows(_PARENTS_OF, child=child)
    return tuple(ParentResult(row[0], row[1], TaskStatus(row[2]), row[3], row[4]) for row in rows)


def mend(transaction: Transaction, gate: KeyGate, children: Sequence[int]) -> Released:
    """Let go those of these blocked tasks whose parents have ended, or have been deleted by somebody."""
    ids = ids_json(sorted(children))
    released = [
        release(transaction, gate, parent, len(children)) for (parent,) in transaction.rows(_ENDED_PARENTS, ids=ids)
    ]
    count = sum(one.count for one in released) + _enter_ready(transaction, gate, ids)
    return Released(count, [changed for one in released for changed in one.ended])


def forget(transaction: Transaction, ids: str) -> None:
    """Delete the edges of tasks that are about to be deleted."""
    for statement in _FORGET_EDGES:
        transaction.rows(statement, ids=ids)
