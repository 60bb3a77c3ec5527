"""Giving running tasks back, when their holder does not finish them.

A release gives the attempt back. A rescue charges the task that was being executed: whoever dies is charged for what it
executed, not for what it merely held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.domain.ending import Held, lost, released
from fleet.domain.execution import Claimant, Fence, Finish
from fleet.storage.database import Transaction
from fleet.storage.parameters import beside_id
from fleet.storage.queue.finishing import end_claims
from fleet.storage.sql import Statement

_HELD = Statement(
    "SELECT id, claim_token, started_at IS NOT NULL FROM work_queue "
    "WHERE worker = :worker AND status = 'running' AND incarnation = :incarnation ORDER BY id"
)

# Whoever executes that task has recorded its end before, or with, whatever it has claimed since: as long as its row is
# held and says that it runs, what was claimed later is not begun.
_LATER_TEXT = """SELECT q.id, q.claim_token FROM work_queue q
    WHERE q.worker = :worker AND q.status = 'running' AND q.incarnation = :incarnation AND q.id <> :id
        AND q.claimed_at >= (SELECT t.claimed_at FROM work_queue t WHERE t.id = :id AND t.claim_token = :token
            AND t.incarnation = :incarnation AND {running}{locked})
    ORDER BY q.id"""
_LATER = Statement(
    _LATER_TEXT.format(running="t.status = 'running'", locked=""),
    _LATER_TEXT.format(running=beside_id("t.status = 'running'"), locked=" FOR UPDATE"),
)


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that runs in an incarnation's name."""

    fence: Fence
    started: bool


def held_by(transaction: Transaction, worker_id: str, incarnation: str) -> tuple[HeldTask, ...]:
    """Return the tasks that run in this incarnation's name, by id."""
    rows = transaction.rows(_HELD, worker=worker_id, incarnation=incarnation)
    return tuple(HeldTask(Fence(task_id, token), bool(started)) for task_id, token, started in rows)


def release(
    transaction: Transaction,
    incarnation: str,
    fences: Sequence[Fence],
    *,
    interrupted: bool,
    reason: str,
) -> tuple[int, ...]:
    """Give tasks back with their attempt; return the ids that were still held."""

    def decide(held: Held) -> Finish:
        return released(held.fence, interrupted=interrupted, reason=reason)

    return end_claims(transaction, incarnation, [(fence, decide) for fence in fences]) if fences else ()


def release_later(transaction: Transaction, claimant: Claimant, lasting: Fence, reason: str) -> tuple[int, ...]:
    """Give back what a worker has claimed later than a task that it executes; see `WorkQueue.release_later`."""
    rows = transaction.rows(
        _LATER,
        worker=claimant.worker_id,
        incarnation=claimant.incarnation,
        id=lasting.task_id,
        token=lasting.claim_token,
    )
    fences = [Fence(*row) for row in rows]
    return release(transaction, claimant.incarnation, fences, interrupted=False, reason=reason)


def charge(transaction: Transaction, incarnation: str, fences: Sequence[Fence], reason: str) -> tuple[int, ...]:
    """Give tasks back with their attempt spent; the last attempt ends them `failed/worker_lost`."""

    def decide(held: Held) -> Finish:
        return lost(held, reason)

    return end_claims(transaction, incarnation, [(fence, decide) for fence in fences]) if fences else ()


def rescue_held(transaction: Transaction, worker_id: str, incarnation: str, reason: str) -> tuple[int, ...]:
    """Give back all that a lost incarnation held: the one task that it executed is charged, others are interruptions.

    Of several that were executed at once nobody knows which it was: none is charged, each is claimed alone next.
    """
    held = held_by(transaction, worker_id, incarnation)
    started = [task.fence for task in held if task.started]
    guilty = started if len(started) == 1 else []
    others = [task.fence for task in held if task.fence not in guilty]
    charged = charge(transaction, incarnation, guilty, reason)
    given_back = release(transaction, incarnation, others, interrupted=True, reason=reason)
    return tuple(sorted((*charged, *given_back)))
