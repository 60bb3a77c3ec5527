"""Tasks assigned to one worker: moved to a lane that it alone serves, and back.

An assignment stands as long as its order is open, and no longer: whatever closes the order gives the task back in the
same transaction, and a task that some other hand has left assigned is found by maintenance.
"""

from __future__ import annotations

from dataclasses import replace

from fleet.domain.execution import Claimant
from fleet.domain.orders import CONFLICT, AssignableTask, OrderAnswer, OrderRecord, assignment_refusal, refusal
from fleet.domain.task import TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.parameters import by_id
from fleet.storage.queue.claiming import standing
from fleet.storage.queue.interning import intern
from fleet.storage.sql import Statement

_TASK_TEXT = """SELECT q.id, q.status, q.claim_token, q.worker, q.queue, q.task, l.capability_key, q.lane_id,
        l.assigned_worker
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id"""
_TASK = Statement(_TASK_TEXT)
_TASK_LOCKED = Statement(_TASK_TEXT, f"{_TASK_TEXT} FOR UPDATE OF q")
# The worker may have failed it just now, and been told to let others try: it is asked for by name.
_ASSIGN = by_id(
    """UPDATE work_queue SET lane_id = :lane, avoid_worker = NULL
    WHERE id = :id AND lane_id = :former AND status = 'pending'"""
)
_GIVE_BACK = Statement("UPDATE work_queue SET lane_id = :lane WHERE id = :id AND lane_id = :assigned")
# From the lanes to their tasks, whatever the planner would rather do: of the lanes few are assigned, of the tasks many
# are pending.
_STRAYS_TEXT = """SELECT q.id, l.assigned_worker FROM claim_lane l {tasks}
    WHERE l.assigned_worker <> '' AND NOT EXISTS (SELECT 1 FROM worker_command c
        WHERE c.worker_id = l.assigned_worker AND c.kind = 'set_task' AND c.status = 'taken' AND {about})
    ORDER BY q.id LIMIT :limit"""
_STRAYS = Statement(
    _STRAYS_TEXT.format(
        tasks="CROSS JOIN work_queue q ON q.lane_id = l.lane_id AND q.status = 'pending'",
        about="json_extract(c.arguments_json, '$.task_id') = q.id",
    ),
    _STRAYS_TEXT.format(
        tasks="""CROSS JOIN LATERAL (SELECT id FROM work_queue WHERE lane_id = l.lane_id AND status = 'pending'
            ORDER BY rank, id LIMIT :limit) q""",
        about="c.arguments_json->>'task_id' = CAST(q.id AS text)",
    ),
)


def look(transaction: Transaction, task_id: int | None, *, locked: bool = False) -> AssignableTask | None:
    """Return a task with its lane, None when there is none; locked, nobody changes it before the commit."""
    if task_id is None:
        return None
    rows = transaction.rows(_TASK_LOCKED if locked else _TASK, id=task_id)
    if not rows:
        return None
    number, status, *others = rows[0]
    return AssignableTask(number, TaskStatus(status), *others)


def assign(transaction: Transaction, order: OrderRecord) -> AssignableTask | OrderAnswer:
    """Move the task of a taken order to its worker's lane; return the task as it is then, or why that cannot be."""
    # The claimant is looked at before the task is locked: registry rows come before tasks everywhere.
    claimant = standing(transaction, Claimant(order.worker_id, order.incarnation, 0.0), locked=False)
    task = look(transaction, order.task_id, locked=True)
    refused = assignment_refusal(order, task)
    if refused is not None or task is None:
        return refused or refusal(CONFLICT, "there is no task")
    if not claimant.may_claim:
        return refusal(CONFLICT, f"{order.worker_id} may claim nothing now (paused, quarantined, ending, or too late)")
    if task.lane_id in claimant.paused_lanes:
        return refusal(CONFLICT, f"queue {task.queue} is paused")
    lane = intern(transaction, task.queue, task.task, task.capability_key, order.worker_id)
    transaction.rows(_ASSIGN, id=task.task_id, lane=lane, former=task.lane_id)
    return replace(task, lane_id=lane, assigned_worker=order.worker_id)


def give_back(transaction: Transaction, task_id: int | None, worker_id: str) -> bool:
    """Move a task from its worker's lane to the one that it came from, whatever has become of it; return whether."""
    task = look(transaction, task_id, locked=True)
    if task is None or task.assigned_worker != worker_id:
        return False
    lane = intern(transaction, task.queue, task.task, task.capability_key)
    return bool(transaction.touched(_GIVE_BACK, id=task.task_id, lane=lane, assigned=task.lane_id))


def strays(transaction: Transaction, limit: int) -> list[tuple[int, str]]:
    """Return (task, worker) of pending tasks that are assigned by no order."""
    return [(task_id, worker) for task_id, worker in transaction.rows(_STRAYS, limit=limit)]
