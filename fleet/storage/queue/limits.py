"""Limits by key: who of a key's tasks may be claimed.

A key with a limit has no more claimable tasks than may run; the others are `blocked`, so that no claim ever has to look
past them. Running tasks are counted, never kept in a counter: a slot is free when its holder's row is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fleet.domain.limits import Limit, limit_for
from fleet.domain.task import BlockedReason, TaskStatus
from fleet.storage.database import Transaction
from fleet.storage.guards import OPEN, leaving
from fleet.storage.sql import Statement, as_time, time_of

AT_ONCE = 1_000
"""Tasks of a key that one step moves, at most: a longer one would keep others from writing."""

_LIMITS = Statement("SELECT key, max_running, rate, per_seconds, burst FROM limit_setting ORDER BY key")

_OF_KEY = f"FROM work_queue WHERE concurrency_key = :key AND {OPEN} AND status"
_RUNNING = Statement(f"SELECT count(*) FROM (SELECT 1 {_OF_KEY} = 'running' LIMIT :most) AS found")
_IN_FRONT = Statement(
    f"""SELECT (SELECT count(*) FROM (SELECT 1 {_OF_KEY} = 'running' LIMIT :most) AS r),
        (SELECT count(*) FROM (SELECT 1 {_OF_KEY} = 'pending' LIMIT :most) AS p),
        (SELECT count(*) FROM (SELECT 1 {_OF_KEY} = 'scheduled' AND blocked_reason = 'rate' LIMIT :most) AS s)"""
)
_NEXT = f"SELECT id {_OF_KEY} = 'blocked' AND blocked_reason = 'limit' ORDER BY rank, id LIMIT :room"
_LAST = f"SELECT id {_OF_KEY} = 'pending' ORDER BY rank DESC, id DESC LIMIT :room"
_LET_IN = """UPDATE work_queue SET status = :status, blocked_reason = :reason,
    available_at = coalesce({at}, available_at)
    WHERE {guard} AND id {chosen}"""
_HOLD = """UPDATE work_queue SET status = 'blocked', blocked_reason = 'limit' WHERE {guard} AND id {chosen}"""
_MAY_ENTER = leaving(TaskStatus.BLOCKED, to=(TaskStatus.PENDING, TaskStatus.SCHEDULED))
_MAY_BE_HELD = leaving(TaskStatus.PENDING, to=(TaskStatus.BLOCKED,))


# PostgreSQL may run a locking subquery of IN more than once, and then takes more rows than asked: as an array, once.
def _changing(text: str, chosen: str, guard: str) -> Statement:
    return Statement(
        text.format(at=":at", chosen=f"IN ({chosen})", guard=guard),
        text.format(
            at="CAST(:at AS timestamptz)", chosen=f"= ANY (ARRAY({chosen} FOR UPDATE SKIP LOCKED))", guard=guard
        ),
    )


_ADMIT = _changing(_LET_IN, _NEXT, _MAY_ENTER)
_HOLD_BACK = _changing(_HOLD, _LAST, _MAY_BE_HELD)

# What is counted under a lock is counted by a later statement than the one that took it.
_LOCK = Statement("SELECT 1", "SELECT pg_advisory_xact_lock(7021003, hashtext(:key))")
_TRY_LOCK = Statement("SELECT true", "SELECT pg_try_advisory_xact_lock(7021003, hashtext(:key))")

# A task whose time was set by a rate that has changed: it waits in line again.
_UNTIME = Statement(
    f"""UPDATE work_queue SET status = 'blocked', blocked_reason = 'limit', available_at = :now
    WHERE {leaving(TaskStatus.SCHEDULED, to=(TaskStatus.BLOCKED,))} AND id IN (
        SELECT id {_OF_KEY} = 'scheduled' AND blocked_reason = 'rate')"""
)
_STATES_AHEAD = Statement("SELECT key, next_allowed_at FROM limit_state WHERE next_allowed_at > :now ORDER BY key")
_STATE = Statement("SELECT next_allowed_at FROM limit_state WHERE key = :key")
_MOVE_STATE = Statement(
    """INSERT INTO limit_state (key, next_allowed_at) VALUES (:key, :at)
    ON CONFLICT (key) DO UPDATE SET next_allowed_at = excluded.next_allowed_at"""
)


class KeyGate:
    """The limits in force, as one transaction sees them; read when first needed.

    Args:
        transaction: the open transaction.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._limits: tuple[Limit, ...] | None = None
        self._found: dict[str, Limit | None] = {}

    def limit(self, key: str | None) -> Limit | None:
        """Return the limit in force for a key."""
        if key is None:
            return None
        if key not in self._found:
            if self._limits is None:
                self._limits = all_limits(self._transaction)
            self._found[key] = limit_for(key, self._limits)
        return self._found[key]

    def admit(self, keys: Iterable[str]) -> int:
        """Let in as many of each key's waiting tasks as its limit has room for; return how many."""
        return sum(self._admit(key) for key in sorted(set(keys)))

    def _admit(self, key: str) -> int:
        limit = self.limit(key)
        if limit is None:
            return self._let_in(key, AT_ONCE, None)
        self._transaction.rows(_LOCK, key=key)
        room = min(self._room(key, limit), AT_ONCE)
        return self._let_in(key, room, self._next_allowed_at(key) if limit.rate is not None else None)

    def _room(self, key: str, limit: Limit) -> int:
        """Return how many more of a key's tasks may be claimable; below 0, how many too many are."""
        most = AT_ONCE + (limit.max_running or 0)
        running, pending, timed = self._transaction.rows(_IN_FRONT, key=key, most=most)[0]
        rooms = []
        if limit.max_running is not None:
            rooms.append(limit.max_running - running - pending - timed)
        if limit.rate is not None:
            # One at a time: its start lets in the next, at the time that the rate allows it.
            rooms.append(1 - pending - timed)
        return int(min(rooms))

    def _let_in(self, key: str, room: int, not_before: datetime | None) -> int:
        if room < 1:
            return 0
        timed = not_before is not None and not_before > self._transaction.now
        return self._transaction.touched(
            _ADMIT,
            key=key,
            room=room,
            status=str(TaskStatus.SCHEDULED if timed else TaskStatus.PENDING),
            reason=str(BlockedReason.RATE) if timed else None,
            at=not_before if timed else None,
        )

    def start(self, key: str) -> bool:
        """Return whether a task of this key may start now, and count the start; else hold its key's tasks back."""
        limit = self.limit(key)
        if limit is None:
            return True
        if not self._transaction.value(_TRY_LOCK, key=key):
            return False
        if limit.max_running is not None and self._running(key, limit.max_running) >= limit.max_running:
            return self._refuse(key)
        return limit.rate is None or self._start_in_time(key, limit)

    def _start_in_time(self, key: str, limit: Limit) -> bool:
        now, next_allowed_at = self._transaction.now, self._next_allowed_at(key)
        if not limit.may_start(next_allowed_at, now):
            return self._refuse(key)
        self._transaction.rows(_MOVE_STATE, key=key, at=limit.after_start(next_allowed_at, now))
        return True

    def _refuse(self, key: str) -> bool:
        """Block what is claimable of a key, and let in again what its limit allows (at a time, where it is a rate)."""
        self._transaction.rows(_HOLD_BACK, key=key, room=AT_ONCE)
        self._admit(key)
        return False

    def trim(self, key: str) -> int:
        """Block what is claimable of a key beyond its limit, the last in line first; return how many changed."""
        limit = self.limit(key)
        if limit is None:
            return 0
        self._transaction.rows(_LOCK, key=key)
        too_many = -self._room(key, limit)
        return self._transaction.touched(_HOLD_BACK, key=key, room=min(too_many, AT_ONCE)) if too_many > 0 else 0

    def fit(self, key: str) -> int:
        """Hold back and let in of a key what its limit, which has changed, wants; return how many changed."""
        self._transaction.rows(_LOCK, key=key)
        self._transaction.rows(_UNTIME, key=key, now=self._transaction.now)
        return self.trim(key) + self.admit([key])

    def shorten_waits(self, changed: Limit) -> None:
        """Let no key that a changed limit covers wait longer than after a start at this moment."""
        now = self._transaction.now
        for key, waits_until in self._transaction.rows(_STATES_AHEAD, now=now):
            limit = self.limit(key) if changed.covers(key) else None
            if limit is not None and limit.rate is not None:
                latest = limit.after_start(None, now) + limit.tolerance
                if latest < time_of(waits_until):
                    self._transaction.rows(_MOVE_STATE, key=key, at=latest)

    def _running(self, key: str, most: int) -> int:
        return int(self._transaction.value(_RUNNING, key=key, most=most + 1))

    def _next_allowed_at(self, key: str) -> datetime | None:
        return as_time(self._transaction.value(_STATE, key=key))


def all_limits(transaction: Transaction) -> tuple[Limit, ...]:
    """Return the stored limits, by key."""
    return tuple(Limit(*row) for row in transaction.rows(_LIMITS))
