"""Being told by a PostgreSQL server instead of asking it: LISTEN on the connection that its process works with anyway.

Who may be idle says so in its group's row for a while; tasks that become claimable are told of only meanwhile, since
NOTIFY takes a lock of the whole server at commit. A slow poll stands behind it.
"""

from __future__ import annotations

from datetime import timedelta

from fleet.clock import boottime
from fleet.storage.database import Database, Transaction
from fleet.storage.server.ears import Ears
from fleet.storage.sql import Statement

LISTENS_FOR = 60.0
"""Seconds for which a group is told of tasks after it has said that somebody of it is idle."""

SETTLING = 2.0
"""Seconds after that in which the queue is looked at more often: transactions were open then that did not see it."""

POLL_SETTLING, POLL = 0.1, 5.0
"""Seconds between two looks that nobody asked for."""

POLL_DEAF = 0.5
"""Seconds between two looks where nothing can be told."""

_LISTEN = Statement("UPDATE worker_group SET listens_until = :until WHERE group_id = :group_id")


class ListeningWatch:
    """Notices what a server tells.

    Args:
        database: the database; this thread alone uses it.
        ears: what its connection hears.
        group_id: the worker group that listens.
    """

    def __init__(self, database: Database, ears: Ears, group_id: str) -> None:
        self._database = database
        self._ears = ears
        self._group_id = group_id
        self._renew_at = float("-inf")
        self._settled_at = float("-inf")
        self._listened_until = float("-inf")
        self._changed_at = boottime()

    def attend(self) -> None:
        """See to it that tasks are told of: called before the queue is looked at on behalf of somebody who is idle."""
        now = boottime()
        if now < self._renew_at or self._ears.is_deaf:
            return
        self._database.write(self._listen)
        self._renew_at = now + LISTENS_FOR / 2
        if now >= self._listened_until:
            self._settled_at = boottime() + SETTLING
        self._listened_until = now + LISTENS_FOR

    def _listen(self, transaction: Transaction) -> None:
        transaction.rows(_LISTEN, group_id=self._group_id, until=transaction.now + timedelta(seconds=LISTENS_FOR))

    def fileno(self) -> int | None:
        """Return the descriptor of the connection that listens."""
        return self._ears.fileno()

    def changed(self) -> bool:
        """Return whether something was told, or it is time for a look that nobody asked for."""
        heard = self._ears.take()
        now = boottime()
        if heard or now - self._changed_at >= self.poll_interval():
            self._changed_at = now
            return True
        return False

    def poll_interval(self) -> float:
        """Return seconds between two looks that nobody asked for."""
        if self._ears.is_deaf:
            return POLL_DEAF
        return POLL_SETTLING if boottime() < self._settled_at else POLL

    def obstacle(self) -> str | None:
        """Return what keeps it from being told, for people."""
        if not self._ears.is_deaf:
            return None
        return (
            f"{self._database.shown}: a pool of connections (such as PgBouncer in transaction mode) passes no "
            f"notifications on: the queue is looked at every {POLL_DEAF} s instead"
        )

    def replaced(self) -> bool:
        """Return False: a server's database has no path."""
        return False

    def close(self) -> None:
        """Nothing is held besides the database's connection."""
