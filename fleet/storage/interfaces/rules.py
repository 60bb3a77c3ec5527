"""What operators say of the queue as a whole: pauses, limits, batches, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fleet.domain.batch import BatchRecord
from fleet.domain.limits import Limit
from fleet.domain.task import NewTask
from fleet.storage.interfaces.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue that nothing is claimed from; `until` None means until it is resumed."""

    queue: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit in force for one key, and what it holds at this moment.

    Attributes:
        key: the key.
        limit: the setting that covers it.
        running: its tasks that run.
        pending: its tasks that may be claimed.
        blocked: its tasks that the limit holds back.
        next_allowed_at: when the rate allows the next start; None when it never started.
    """

    key: str
    limit: Limit
    running: int
    pending: int
    blocked: int
    next_allowed_at: datetime | None


class QueueRules(Protocol):
    """Pauses, limits, batches and settings of the queue."""

    def pause(self, queue: str, until: datetime | None = None) -> None:
        """Let nothing be claimed from a queue, until a time or until it is resumed; what runs goes on."""

    def resume(self, queue: str) -> bool:
        """Let a queue be claimed from again; return False when it was not paused."""

    def pauses(self) -> tuple[Pause, ...]:
        """Return the queues that are paused now, by name."""

    def set_limit(self, limit: Limit) -> None:
        """Store a limit and apply it: what is too much is blocked, what it allows is let go, in bounded steps."""

    def remove_limit(self, key: str) -> bool:
        """Forget a limit and let go what it held, in bounded steps; return False when there was none."""

    def limits(self) -> tuple[Limit, ...]:
        """Return the stored limits, by key."""

    def limit_use(self, limit: int = 1_000) -> tuple[LimitUse, ...]:
        """Return the keys of open tasks that a limit covers, with what it holds; at most `limit` keys."""

    def create_batch(
        self, batch_id: str, callback: NewTask | None = None, *, transaction: Transaction | None = None
    ) -> BatchRecord:
        """Make an open batch, and the blocked task that is to follow its end.

        Raises:
            ConflictError: there is a batch of this id.
        """

    def close_batch(self, batch_id: str, *, transaction: Transaction | None = None) -> bool:
        """Say that nothing more is added: it ends with its last task; return False when it was closed before.

        Raises:
            NotFound: there is no such batch.
        """

    def batch(self, batch_id: str) -> BatchRecord | None:
        """Return one batch, its tasks counted."""

    def batches(self, limit: int = 100) -> tuple[BatchRecord, ...]:
        """Return batches, newest first."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete batches that ended `older_than` seconds ago and have no tasks left, and limit states as old."""

    def setting(self, name: str) -> float | None:
        """Return a setting of the fleet in seconds: `age` (waiting worth one step of priority) or `retention`.

        None means that it is off. Raises UsageError for any other name.
        """

    def settings(self) -> Mapping[str, float | None]:
        """Return all settings, by name."""

    def set_setting(self, name: str, seconds: float | None) -> None:
        """Store a setting; a new `age` re-ranks the open tasks, in bounded steps."""
