"""What a worker has done: statistics by queue and handler, written with the ends themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.clock import boottime
from fleet.domain.execution import ClaimReply, Failure
from fleet.storage.interfaces import MinuteCount
from fleet.worker.executor import Execution

MOST_UNWRITTEN = 16
"""Executions whose counts wait for a later commit, at most: a kill takes them along. A statement costs a worker that
records one task at a time a thirtieth of it, and one in so many next to nothing."""

LONGEST_UNWRITTEN = 0.02
"""Seconds for which counts wait, at most, as long as there are commits to go with."""


@dataclass(slots=True)
class _Row:
    done: int = 0
    failed: int = 0
    busy_seconds: float = 0.0
    max_seconds: float = 0.0


def counted(executions: Iterable[Execution]) -> list[MinuteCount]:
    """Return executions counted by queue and handler."""
    rows: dict[tuple[str, str], _Row] = {}
    # Once for every task: as little as can be.
    for claimed, outcome, _, seconds in executions:
        kind = (claimed.queue, claimed.task)
        row = rows.get(kind)
        if row is None:
            row = rows[kind] = _Row()
        if outcome is None or outcome.__class__ is str:
            row.done += 1
        elif outcome.__class__ is Failure:
            row.failed += 1
        row.busy_seconds += seconds
        if seconds > row.max_seconds:
            row.max_seconds = seconds
    return [MinuteCount(*kind, row.done, row.failed, row.busy_seconds, row.max_seconds) for kind, row in rows.items()]


@dataclass(slots=True)
class Tally:
    """Executions whose end was recorded, and whose counts are not written yet."""

    _unwritten: list[Execution] = field(default_factory=list)
    _written_at: float = field(default_factory=boottime)
    _writes: bool = False

    def due(self, executed: Sequence[Execution], reply: ClaimReply, now: float) -> Sequence[MinuteCount]:
        """Return the counts to write in the transaction that records `executed` at boot time `now`; none to wait.

        Nothing is noted: the transaction may yet be undone.
        """
        waits = reply.tasks and len(self._unwritten) + len(executed) < MOST_UNWRITTEN
        self._writes = not (waits and now - self._written_at < LONGEST_UNWRITTEN)
        if not self._writes:
            return ()
        return counted([*self._unwritten, *_accepted(executed, reply)])

    def note(self, executed: Sequence[Execution], reply: ClaimReply, now: float) -> None:
        """Note that the transaction of `due` was committed."""
        if self._writes:
            self._unwritten.clear()
            self._written_at = now
            return
        self._unwritten += _accepted(executed, reply)

    @property
    def is_full(self) -> bool:
        """Whether so many counts wait that the next end is to be recorded with them."""
        return len(self._unwritten) >= MOST_UNWRITTEN

    def add(self, executions: Iterable[Execution]) -> None:
        """Count executions whose end the keeper has recorded."""
        self._unwritten += executions

    def take(self) -> list[list[Any]]:
        """Return the counts as JSON values, and forget them; empty when there are none."""
        counts = counted(self._unwritten)
        self._unwritten.clear()
        return [
            [count.queue, count.task, count.done, count.failed, count.busy_seconds, count.max_seconds]
            for count in counts
        ]


def _accepted(executed: Sequence[Execution], reply: ClaimReply) -> Sequence[Execution]:
    if len(reply.accepted) == len(executed):
        return executed
    return [execution for execution in executed if execution.claimed.fence in reply.accepted]


def counts(rows: list[list[Any]]) -> list[MinuteCount]:
    """Return the counts that `Tally.take` told."""
    return [MinuteCount(*row) for row in rows]
