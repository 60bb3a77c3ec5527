"""A task like one that was added before: one statement adds it, and is its own transaction.

What the earlier one's row was made of (the handler's stored defaults, the lane, the worth of waiting) is remembered,
and the statement itself compares it with what is stored now. Where anything differs it adds nothing, and the task goes
the long way, which sets the next precedent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from fleet.domain.rank import rank
from fleet.domain.task import INLINE_PAYLOAD_BYTES, NewTask
from fleet.storage.database import Database, Transaction
from fleet.storage.queue.entry import Entry, likeness
from fleet.storage.queue.inserting import columns_of
from fleet.storage.sql import Statement

MOST = 1_000

_AGE = "(SELECT value FROM fleet_meta WHERE name = 'age_ms')"
_DEFAULTS = """(SELECT json_array(queue, requires_json, max_attempts, timeout_seconds, retry_json)
    FROM task_handler WHERE name = {name})"""
_FACTS = Statement(f"SELECT {_AGE} AS age, {_DEFAULTS.format(name=':task')} AS defaults")
# Of the lane, or of each task anew.
_OWN = ("lane_id", "queue", "task", "rank", "created_at", "parent_id")
_COMPARED = ("lane_id", "queue", "task", "capability_key", "age", "task", "defaults")


@lru_cache(maxsize=64)
def _adding(columns: tuple[str, ...]) -> str:
    """Return SQLite's own text: rank, time, parent and payload, then `columns`, then what is compared, all by place."""
    names = ", ".join((*_OWN, "payload_json", *columns))
    values = ", ".join("?" * (4 + len(columns)))
    return f"""INSERT INTO work_queue ({names}) SELECT lane_id, queue, task, {values} FROM claim_lane
        WHERE lane_id = ? AND queue = ? AND task = ? AND capability_key = ? AND assigned_worker = ''
            AND {_AGE} IS ? AND {_DEFAULTS.format(name="?")} IS ?"""


@dataclass(frozen=True, slots=True)
class _Precedent:
    """How a task's row was made.

    Attributes:
        adding: the text that adds another.
        shared: what all such rows have, and of what they are made.
        age_ms: what waiting was worth.
    """

    adding: str
    shared: tuple[Any, ...]
    age_ms: int


class Precedents:
    """What is remembered of the tasks that were added one by one.

    Args:
        database: where tasks are added.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[Any, _Precedent] = {}

    def follow(self, task: NewTask, payload: str) -> int | None:
        """Add a task durably as one like it was added; return its id, None when it is to go the long way.

        Args:
            task: the task, whatever payload it has.
            payload: its payload.
        """
        if not self._known or not _is_plain(task) or len(payload) > INLINE_PAYLOAD_BYTES:
            return None
        known = self._known.get((task.priority, likeness(task)))
        if known is None:
            return None

        def own(now: datetime) -> tuple[Any, ...]:
            return rank(task.priority, now, known.age_ms), now, task.parent_id, payload

        return self._database.add(known.adding, own, known.shared)

    def set(self, transaction: Transaction, task: NewTask) -> None:
        """Remember of what the row of a task is made, if others like it can be added by one statement."""
        if not self._database.commits_alone or not _is_plain(task):
            return
        entry = Entry(transaction, {task.task}, None)
        row = entry.row(task)
        columns = tuple(name for name in columns_of([row]) if name not in _OWN)
        known = {**row, **(transaction.record(_FACTS, task=task.task) or {})}
        shared = tuple(known[name] for name in (*columns, *_COMPARED))
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[task.priority, likeness(task)] = _Precedent(_adding(columns), shared, entry.age_ms)


def _is_plain(task: NewTask) -> bool:
    """Return whether a task becomes claimable at once, whatever else there is."""
    keys = task.dedupe_key or task.idempotency_key or task.concurrency_key
    others = task.depends_on or task.batch_id or task.ref
    return not keys and not others and task.delay is None and task.at is None and task.deadline is None
