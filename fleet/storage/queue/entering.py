"""The one way into the queue: what was held, or waited for its time, becomes claimable or waits for a slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.task import BlockedReason, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import leaving
from fleet.storage.parameters import by_ids, ids_json
from fleet.storage.queue.limits import KeyGate

_INTO = (TaskStatus.PENDING, TaskStatus.SCHEDULED, TaskStatus.BLOCKED)
_ENTER_TEXT = """UPDATE work_queue SET status = :status, blocked_reason = :reason
    WHERE id IN {ids} AND """
_ENTER = {
    TaskStatus.PENDING: by_ids(
        _ENTER_TEXT + leaving(TaskStatus.BLOCKED, TaskStatus.SCHEDULED, to=(TaskStatus.PENDING,))
    ),
    TaskStatus.SCHEDULED: by_ids(_ENTER_TEXT + leaving(TaskStatus.BLOCKED, to=(TaskStatus.SCHEDULED,))),
    # From blocked to blocked only the reason changes.
    TaskStatus.BLOCKED: by_ids(
        _ENTER_TEXT + f"(status = 'blocked' OR {leaving(TaskStatus.SCHEDULED, to=(TaskStatus.BLOCKED,))})"
    ),
}


@dataclass(frozen=True, slots=True)
class Entrant:
    """A task that is about to enter.

    Attributes:
        task_id: the task.
        available_at: when it may run at the earliest.
        key: its concurrency key.
        timed: whether it is let in by its key's rate already.
    """

    task_id: int
    available_at: datetime | None
    key: str | None
    timed: bool = False


def entrance(
    gate: KeyGate, available_at: datetime | None, key: str | None, now: datetime, *, timed: bool = False
) -> tuple[TaskStatus, BlockedReason | None]:
    """Return the status, and its reason, with which a task enters the queue."""
    if available_at is not None and available_at > now:
        return TaskStatus.SCHEDULED, None
    if not timed and gate.limit(key) is not None:
        return TaskStatus.BLOCKED, BlockedReason.LIMIT
    return TaskStatus.PENDING, None


def enter(transaction: Transaction, gate: KeyGate, entrants: Iterable[Entrant]) -> int:
    """Let blocked or scheduled tasks in; return how many changed."""
    places: dict[tuple[TaskStatus, BlockedReason | None], list[Entrant]] = {}
    for entrant in entrants:
        place = entrance(gate, entrant.available_at, entrant.key, transaction.now, timed=entrant.timed)
        places.setdefault(place, []).append(entrant)
    changed = 0
    for (status, reason), members in sorted(places.items(), key=lambda item: str(item[0])):
        changed += _move(transaction, status, reason, [member.task_id for member in members])
    gate.admit({member.key for member in places.get((TaskStatus.BLOCKED, BlockedReason.LIMIT), ()) if member.key})
    return changed


def _move(transaction: Transaction, status: TaskStatus, reason: BlockedReason | None, ids: Sequence[int]) -> int:
    return transaction.touched(
        _ENTER[status], ids=ids_json(sorted(ids)), status=str(status), reason=None if reason is None else str(reason)
    )
