"""What operators say of the queue as a whole, in SQL: pauses, limits, batches, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from fleet.domain.batch import BatchRecord
from fleet.domain.limits import Limit
from fleet.domain.task import BlockedReason, NewTask
from fleet.storage import meta
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.guards import OPEN
from fleet.storage.interfaces import LimitUse, Pause
from fleet.storage.queue import batches, pruning, ranking
from fleet.storage.queue.enqueuing import add_tasks
from fleet.storage.queue.limits import AT_ONCE, KeyGate, all_limits
from fleet.storage.sql import Statement, as_time

T = TypeVar("T")

_PAUSE = Statement(
    """INSERT INTO queue_setting (queue, paused, paused_until) VALUES (:queue, true, :until)
    ON CONFLICT (queue) DO UPDATE SET paused = true, paused_until = excluded.paused_until"""
)
_RESUME = Statement(
    """DELETE FROM queue_setting WHERE queue = :queue AND paused = true
        AND (paused_until IS NULL OR paused_until > :now)"""
)
_PAUSES = Statement(
    """SELECT queue, paused_until FROM queue_setting
    WHERE paused = true AND (paused_until IS NULL OR paused_until > :now) ORDER BY queue"""
)

_SET_LIMIT = Statement(
    """INSERT INTO limit_setting (key, max_running, rate, per_seconds, burst)
    VALUES (:key, :max_running, :rate, :per_seconds, :burst)
    ON CONFLICT (key) DO UPDATE SET max_running = excluded.max_running, rate = excluded.rate,
        per_seconds = excluded.per_seconds, burst = excluded.burst"""
)
_REMOVE_LIMIT = Statement("DELETE FROM limit_setting WHERE key = :key")
_NEXT_KEY = Statement(f"SELECT min(concurrency_key) FROM work_queue WHERE concurrency_key > :after AND {OPEN}")
_OF_KEY = f"FROM work_queue WHERE concurrency_key = :key AND {OPEN} AND status"
_USE = Statement(
    f"""SELECT (SELECT count(*) {_OF_KEY} = 'running'), (SELECT count(*) {_OF_KEY} = 'pending'),
        (SELECT count(*) {_OF_KEY} = 'blocked' AND blocked_reason = 'limit')
            + (SELECT count(*) {_OF_KEY} = 'scheduled' AND blocked_reason = 'rate'),
        (SELECT next_allowed_at FROM limit_state WHERE key = :key)"""
)


class SqlQueueRules:
    """`QueueRules` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # pauses

    def pause(self, queue: str, until: datetime | None = None) -> None:
        """Let nothing be claimed from a queue."""

        def work(transaction: Transaction) -> None:
            transaction.rows(_PAUSE, queue=queue, until=until)
            record_event(transaction, "queue_paused", queue, f"until {until.isoformat()}" if until else "")

        self._database.write(work)

    def resume(self, queue: str) -> bool:
        """Let a queue be claimed from again."""

        def work(transaction: Transaction) -> bool:
            resumed = bool(transaction.touched(_RESUME, queue=queue, now=transaction.now))
            if resumed:
                record_event(transaction, "queue_resumed", queue, "")
            return resumed

        return self._database.write(work)

    def pauses(self) -> tuple[Pause, ...]:
        """Return the queues that are paused now."""
        rows = self._database.read(lambda transaction: transaction.rows(_PAUSES, now=transaction.now))
        return tuple(Pause(queue, as_time(until)) for queue, until in rows)

    # limits

    def set_limit(self, limit: Limit) -> None:
        """Store a limit and apply it."""

        def work(transaction: Transaction) -> None:
            transaction.rows(
                _SET_LIMIT,
                key=limit.key,
                max_running=limit.max_running,
                rate=limit.rate,
                per_seconds=limit.per_seconds,
                burst=limit.burst,
            )
            KeyGate(transaction).shorten_waits(limit)
            record_event(transaction, "limit_set", limit.key, str(limit))

        self._database.write(work)
        self._apply(limit)

    def remove_limit(self, key: str) -> bool:
        """Forget a limit and let go what it held."""

        def work(transaction: Transaction) -> bool:
            removed = bool(transaction.touched(_REMOVE_LIMIT, key=key))
            if removed:
                KeyGate(transaction).shorten_waits(Limit(key, max_running=0))
                record_event(transaction, "limit_removed", key, "")
            return removed

        removed = self._database.write(work)
        if removed:
            self._apply(Limit(key, max_running=0))
        return removed

    def _apply(self, limit: Limit) -> None:
        """Hold back and let in, key by key and step by step, until the keys that a limit covers fit it."""
        after = ""
        while (key := self._next_key(after)) is not None:
            if limit.covers(key):
                while self._database.write(lambda transaction, key=key: KeyGate(transaction).fit(key)) >= AT_ONCE:  # type: ignore[misc]
                    continue
            after = key

    def _next_key(self, after: str) -> str | None:
        found = self._database.read(lambda transaction: transaction.value(_NEXT_KEY, after=after))
        return None if found is None else str(found)

    def limits(self) -> tuple[Limit, ...]:
        """Return the stored limits, by key."""
        return self._database.read(all_limits)

    def limit_use(self, limit: int = 1_000) -> tuple[LimitUse, ...]:
        """Return the keys that a limit covers, with what it holds."""
        return self._database.read(lambda transaction: _uses(transaction, limit))

    # batches

    def create_batch(self, batch_id: str, callback: NewTask | None = None, *, transaction: Any = None) -> BatchRecord:
        """Make an open batch, and the blocked task that is to follow its end."""

        def work(own: Transaction) -> BatchRecord:
            added = add_tasks(own, [callback], blocked=BlockedReason.BATCH) if callback is not None else None
            return batches.create(own, batch_id, added.ids[0] if added else None)

        return self._within(transaction, work)

    def close_batch(self, batch_id: str, *, transaction: Any = None) -> bool:
        """Say that nothing more is added to a batch."""
        return self._within(transaction, lambda own: batches.close(own, batch_id))

    def _within(self, transaction: Any, work: Callable[[Transaction], T]) -> T:
        if transaction is None:
            return self._database.write(work, durable=True)
        return work(self._database.within(transaction))

    def batch(self, batch_id: str) -> BatchRecord | None:
        """Return one batch, its tasks counted."""
        return self._database.read(lambda transaction: batches.get(transaction, batch_id))

    def batches(self, limit: int = 100) -> tuple[BatchRecord, ...]:
        """Return batches, newest first."""
        return self._database.read(lambda transaction: batches.newest(transaction, limit))

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete batches without tasks, and states of limits, that are old."""
        return pruning.prune_around(self._database, older_than, limit)

    # settings

    def setting(self, name: str) -> float | None:
        """Return a setting of the fleet in seconds."""
        return self._database.read(lambda transaction: meta.setting(transaction, name))

    def settings(self) -> Mapping[str, float | None]:
        """Return all settings, by name."""
        return self._database.read(meta.settings)

    def set_setting(self, name: str, seconds: float | None) -> None:
        """Store a setting; a new `age` re-ranks the open tasks."""

        def work(transaction: Transaction) -> None:
            meta.store(transaction, name, seconds)
            record_event(transaction, "setting_changed", name, "off" if seconds is None else f"{seconds:g} s")

        self._database.write(work)
        if name == "age":
            ranking.rank_anew(self._database)


def _uses(transaction: Transaction, limit: int) -> tuple[LimitUse, ...]:
    gate = KeyGate(transaction)
    uses: list[LimitUse] = []
    key = ""
    while len(uses) < limit and (key := transaction.value(_NEXT_KEY, after=key)) is not None:
        covering = gate.limit(key)
        if covering is not None:
            running, pending, blocked, allowed = transaction.rows(_USE, key=key)[0]
            uses.append(LimitUse(key, covering, running, pending, blocked, as_time(allowed)))
    return tuple(uses)
