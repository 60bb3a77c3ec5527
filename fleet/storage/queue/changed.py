"""Tasks whose status a statement has changed: what it returns of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleet.domain.task import FINAL_STATUSES, TaskStatus

CHANGED_COLUMNS = """work_queue.id, work_queue.status, work_queue.concurrency_key, work_queue.batch_id,
    EXISTS (SELECT 1 FROM work_dependency d WHERE d.parent = work_queue.id AND d.satisfied = false)"""


@dataclass(frozen=True, slots=True)
class Changed:
    """A task whose status a statement has changed.

    Attributes:
        task_id: the task.
        status: its status now.
        key: its concurrency key.
        batch_id: its batch.
        has_dependents: whether others still wait for it.
    """

    task_id: int
    status: TaskStatus
    key: str | None
    batch_id: str | None
    has_dependents: bool

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Changed:
        """Return what CHANGED_COLUMNS say."""
        return cls(row[0], TaskStatus(row[1]), row[2], row[3], bool(row[4]))

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL_STATUSES
