"""What one execution may read and write of its own task: progress, steps, parents, a transaction for its last step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from fleet.clock import boottime
from fleet.domain.execution import Claimant, ClaimedTask, Finish
from fleet.domain.task import ParentResult
from fleet.errors import UsageError
from fleet.storage.interfaces import Storage, Transaction
from fleet.worker.patience import TROUBLE

T = TypeVar("T")

LONG_TRANSACTION = 1.0
"""Seconds after which a handler's transaction is told of: on SQLite everybody else waits for it."""

_log = logging.getLogger("fleet.worker")


class ClaimLost(Exception):
    """A completion found that its claim is gone: its handler's transaction must not commit."""


def claim_name(incarnation: str, task_id: int, claim_token: int) -> str:
    """Return a name for one execution, unlike that of any other: it begins with its worker's life."""
    return f"{incarnation}.{task_id}.{claim_token}"


class OwnTask:
    """The rows of a claimed task, as its handler may use them.

    Args:
        storage: the store.
        claimant: who holds the claim.
        claimed: the task.
        patiently: runs an operation, again and again while the database does not answer.
        shares_thread: whether other handlers run in its thread, as coroutines do beside each other.
    """

    def __init__(
        self,
        storage: Storage,
        claimant: Claimant,
        claimed: ClaimedTask,
        patiently: Callable[[Callable[[], Any], str], Any],
        shares_thread: bool = False,
    ) -> None:
        self._shares_thread = shares_thread
        self._storage = storage
        self._claimant = claimant
        self._claimed = claimed
        self._patiently = patiently
        self._manager: AbstractContextManager[Transaction] | None = None
        self._transaction: Transaction | None = None
        self._opened_at = 0.0

    @property
    def claim(self) -> str:
        """The name of the claim, as `claim_name` gives it."""
        fence = self._claimed.fence
        return claim_name(self._claimant.incarnation, fence.task_id, fence.claim_token)

    def progress(self, fraction: float | None, text: str | None) -> bool:
        """Store progress; return False when the claim is gone. Trouble with it never reaches the handler."""
        if self.has_transaction:
            # Its completion is near, and a second writer would wait for this very transaction.
            return True
        try:
            return self._storage.queue.progress(self._claimant.incarnation, self._claimed.fence, fraction, text)
        except TROUBLE as error:
            _log.warning("progress of task %d was not stored: %s", self._claimed.task_id, error)
            return True

    def steps(self) -> Mapping[str, str]:
        """Return the stored steps as JSON texts, by name."""
        return self._read(lambda: self._storage.queue.steps(self._claimed.task_id), "reading steps")

    def check_no_transaction(self, step: str) -> None:
        """Raise UsageError when the task's transaction is open: a step would wait for it."""
        if self.has_transaction:
            raise UsageError(f"step {step!r}: the transaction of ctx.transaction() is open: make it the last step")

    def save_step(self, name: str, value_json: str) -> bool:
        """Store a step; return False when the claim is gone."""
        self.check_no_transaction(name)
        write = self._storage.queue.save_step
        incarnation, fence = self._claimant.incarnation, self._claimed.fence
        return self._read(lambda: write(incarnation, fence, name, value_json), f"storing step {name}")

    def parents(self) -> tuple[ParentResult, ...]:
        """Return the tasks that it depends on."""
        return self._read(lambda: self._storage.queue.parents(self._claimed.task_id), "reading parents")

    def _read(self, operation: Callable[[], T], what: str) -> T:
        found: T = self._patiently(operation, f"{what} of task {self._claimed.task_id}")
        return found

    # The handler's own transaction

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open that the completion is to close."""
        return self._transaction is not None

    def open_transaction(self) -> Transaction:
        """Open the transaction that the completion closes.

        Raises:
            UsageError: one is open, or other handlers run in this thread: they would meet it.
        """
        if self._shares_thread:
            raise UsageError(
                "ctx.transaction(): an async handler beside others (--concurrency) cannot hold one: "
                "write the handler with def, or run its worker with --concurrency 1"
            )
        if self._transaction is not None:
            raise UsageError("ctx.transaction(): one is open already: a task has one, for its last step")
        self._manager = self._storage.transaction()
        self._transaction = self._manager.__enter__()
        self._opened_at = boottime()
        return self._transaction

    def complete(self, finish: Finish) -> bool:
        """Write the task's success in its own transaction, and commit; False, and nothing kept, when the claim is gone.

        Raises:
            Exception: whatever kept it from being committed; it is rolled back.
        """
        transaction, manager = self._transaction, self._manager
        if transaction is None or manager is None:
            raise UsageError("no transaction is open")
        self._transaction = self._manager = None
        held = boottime() - self._opened_at
        if held > LONG_TRANSACTION:
            _log.warning("task %d held a transaction for %.1f s: others waited", self._claimed.task_id, held)
        try:
            with _resumed(manager):
                reply = self._storage.queue.finish_and_claim(self._claimant, [finish], (), 0, transaction=transaction)
                if finish.fence not in reply.accepted:
                    raise ClaimLost
        except ClaimLost:
            return False
        return True

    def roll_back(self) -> None:
        """Undo the open transaction, if there is one."""
        manager, self._transaction, self._manager = self._manager, None, None
        if manager is None:
            return
        try:
            with _resumed(manager):
                raise ClaimLost
        except ClaimLost:
            return


class _resumed:
    """The rest of a block that was entered before."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager

    def __enter__(self) -> None:
        """Go on."""

    def __exit__(self, *error: Any) -> bool | None:
        return self._manager.__exit__(*error)
