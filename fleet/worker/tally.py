"""What a worker has done since it last said so: statistics by queue and handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleet.storage.interfaces import MinuteCount
from fleet.worker.executor import Execution

_ROWS_PER_MESSAGE = 200


@dataclass(slots=True)
class _Row:
    done: int = 0
    failed: int = 0
    busy_seconds: float = 0.0
    max_seconds: float = 0.0


class Tally:
    """Counts executions whose end was recorded."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _Row] = {}

    def add(self, execution: Execution) -> None:
        """Count one execution."""
        claimed, seconds = execution.claimed, execution.seconds
        key = (claimed.queue, claimed.task)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row()
        if execution.succeeded:
            row.done += 1
        elif execution.failed:
            row.failed += 1
        row.busy_seconds += seconds
        if seconds > row.max_seconds:
            row.max_seconds = seconds

    def take(self) -> list[list[Any]]:
        """Return some of the rows as JSON values, and forget them; empty when there are none."""
        taken = list(self._rows.items())[:_ROWS_PER_MESSAGE]
        for key, _row in taken:
            del self._rows[key]
        return [[*key, row.done, row.failed, row.busy_seconds, row.max_seconds] for key, row in taken]


def counts(rows: list[list[Any]]) -> list[MinuteCount]:
    """Return the counts that `Tally.take` told."""
    return [MinuteCount(*row) for row in rows]
