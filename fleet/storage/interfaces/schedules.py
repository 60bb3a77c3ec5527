"""Periodic tasks."""

from __future__ import annotations

from typing import Protocol

from fleet.domain.schedule import Schedule, ScheduleRecord, Tick


class Schedules(Protocol):
    """Periodic tasks: their ticks are rows, written in the same transaction as the tasks that they enqueue."""

    def add(self, schedule: Schedule, *, replace: bool = False) -> ScheduleRecord:
        """Store a schedule; its first tick is the next one from now (or from `starts_at`).

        Raises:
            ConflictError: there is one of this name and `replace` is False.
            UsageError: its cron text or zone is none.
        """

    def remove(self, name: str) -> bool:
        """Delete a schedule and its ticks; return False when there is none. Tasks that it enqueued stay."""

    def pause(self, name: str, paused: bool) -> bool:
        """Leave out its ticks, or make them again from now on; return False when there is no such schedule."""

    def get(self, name: str) -> ScheduleRecord | None:
        """Return one schedule."""

    def list(self) -> tuple[ScheduleRecord, ...]:
        """Return the schedules, by name."""

    def ticks(self, name: str, limit: int = 20) -> tuple[Tick, ...]:
        """Return a schedule's ticks, newest first."""

    def tick(self, limit: int = 100) -> int:
        """Make the ticks that are due, a transaction for each schedule; return how many tasks were enqueued.

        Takes the write lock only when one is due. One schedule that cannot be ticked keeps no other from it: it is
        paused, and an event says why.
        """

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete ticks older than `older_than` seconds, except each schedule's last; return how many."""
