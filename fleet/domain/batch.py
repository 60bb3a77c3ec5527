"""Batches: tasks that are counted together, and the task that follows when all of them have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.task import OPEN_STATUSES, TaskStatus


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A row of `work_batch`, with its tasks counted.

    Attributes:
        batch_id: its name.
        created_at: when it was made.
        closed_at: when it was said that nothing more is added; only then can it end.
        ended_at: when it was closed and all its tasks had ended.
        callback_id: the task that follows its end, if there is one.
        counts: how many of its tasks are in each status (finished ones that were pruned are not counted).
    """

    batch_id: str
    created_at: datetime
    closed_at: datetime | None
    ended_at: datetime | None
    callback_id: int | None
    counts: Mapping[TaskStatus, int]

    @property
    def size(self) -> int:
        """How many tasks it has."""
        return sum(self.counts.values())

    @property
    def open(self) -> int:
        """How many of its tasks have not ended."""
        return sum(self.counts.get(status, 0) for status in OPEN_STATUSES)

    @property
    def succeeded(self) -> bool:
        """Whether it has ended and every task of it is done."""
        return self.ended_at is not None and self.size == self.counts.get(TaskStatus.DONE, 0)
