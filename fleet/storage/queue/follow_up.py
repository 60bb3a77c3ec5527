"""What follows, in the same transaction, from tasks that changed: slots of keys, dependents, batches.

Every statement that ends a task or takes it off a slot returns `changed.CHANGED_COLUMNS`; what it returned comes here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fleet.storage.database import Transaction
from fleet.storage.queue import batches, dependencies
from fleet.storage.queue.changed import Changed
from fleet.storage.queue.limits import KeyGate

MOST_AT_ONCE = 2_000
"""Dependents that one transaction lets go, about; the others follow in `advance`."""


def follow_up(transaction: Transaction, changed: Iterable[Changed], gate: KeyGate | None = None) -> None:
    """Do what follows from changed tasks, and from what changes by that, until nothing more does."""
    gate = gate or KeyGate(transaction)
    keys: set[str] = set()
    ended_in: set[str] = set()
    left = MOST_AT_ONCE
    waiting = deque(changed)
    while waiting:
        one = waiting.popleft()
        if one.key is not None:
            keys.add(one.key)
        if not one.is_final:
            continue
        if one.batch_id is not None:
            ended_in.add(one.batch_id)
        if one.has_dependents:
            released = dependencies.release(transaction, gate, one.task_id, max(left, 0))
            left -= released.count
            waiting.extend(released.ended)
    gate.admit(keys)
    batches.end(transaction, gate, ended_in)


def next_releases(transaction: Transaction, limit: int) -> int:
    """Let go dependents of tasks that have too many for one transaction; return how many."""
    gate = KeyGate(transaction)
    total = 0
    for task_id in dependencies.unreleased(transaction):
        if total >= limit:
            break
        released = dependencies.release(transaction, gate, task_id, limit - total)
        total += released.count
        follow_up(transaction, released.ended, gate)
    return total
