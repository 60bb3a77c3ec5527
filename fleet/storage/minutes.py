"""Statistics in SQL: finished tasks by minute, queue and handler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from operator import attrgetter

from fleet.storage.database import Transaction
from fleet.storage.interfaces import MinuteCount
from fleet.storage.sql import Statement

_FINISHED = Statement("SELECT coalesce(sum(done), 0), coalesce(sum(failed), 0) FROM work_minute WHERE minute >= :since")
ON_CONFLICT = """ON CONFLICT (minute, queue, task) DO UPDATE SET done = work_minute.done + excluded.done,
        failed = work_minute.failed + excluded.failed,
        busy_seconds = work_minute.busy_seconds + excluded.busy_seconds,
        max_seconds = CASE WHEN excluded.max_seconds > work_minute.max_seconds THEN excluded.max_seconds
            ELSE work_minute.max_seconds END"""
_ADD = Statement(
    f"""INSERT INTO work_minute (minute, queue, task, done, failed, busy_seconds, max_seconds)
    VALUES (:minute, :queue, :task, :done, :failed, :busy_seconds, :max_seconds) {ON_CONFLICT}"""
)
by_kind = attrgetter("queue", "task")


def add(transaction: Transaction, counts: Iterable[MinuteCount]) -> None:
    """Add finished tasks to the current minute: last in a transaction, since others wait for these few rows."""
    minute = transaction.now.replace(second=0, microsecond=0)
    # In one order everywhere, so that no two transactions wait for each other.
    for count in sorted(counts, key=by_kind):
        transaction.rows(
            _ADD,
            minute=minute,
            queue=count.queue,
            task=count.task,
            done=count.done,
            failed=count.failed,
            busy_seconds=count.busy_seconds,
            max_seconds=count.max_seconds,
        )


def finished_since(transaction: Transaction, seconds: float) -> Mapping[str, int]:
    """Return how many tasks were done and failed in the last seconds, by whole minutes."""
    since = (transaction.now - timedelta(seconds=seconds)).replace(second=0, microsecond=0)
    done, failed = transaction.rows(_FINISHED, since=since)[0]
    return {"done": int(done), "failed": int(failed)}
