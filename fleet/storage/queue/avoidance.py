"""A task that failed at one worker prefers another, where another can take it."""

from __future__ import annotations

from fleet.domain.execution import Fence
from fleet.domain.lanes import Offer
from fleet.storage.database import Transaction
from fleet.storage.rows import lane_of, loads
from fleet.storage.sql import Statement

_LANE = Statement(
    """SELECT l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker
    FROM work_queue q JOIN claim_lane l ON l.lane_id = q.lane_id WHERE q.id = :id"""
)
_OTHERS = Statement(
    """SELECT worker_id, handlers_json, queues_json, capabilities_json FROM worker_registry w
    WHERE status = 'active' AND worker_id <> :worker AND lease_expires_at > :now
        AND NOT EXISTS (SELECT 1 FROM quarantine z WHERE z.released_at IS NULL AND z.until > :now
            AND z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END)
    LIMIT 200"""
)


def another_serves(transaction: Transaction, worker_id: str, fence: Fence) -> bool:
    """Return whether another live worker can take the task: only then is the one that just failed it passed over."""
    found = transaction.rows(_LANE, id=fence.task_id)
    if not found:
        return False
    lane = lane_of(found[0])
    others = transaction.rows(_OTHERS, worker=worker_id, now=transaction.now)
    return any(_offer(*row).serves(lane) for row in others)


def _offer(worker_id: str, handlers: str, queues: str, capabilities: str) -> Offer:
    return Offer(
        worker_id,
        frozenset(loads(handlers) or ()),
        tuple((str(queue), 0.0) for queue in loads(queues) or ()),
        loads(capabilities) or {},
    )
