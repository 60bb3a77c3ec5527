"""Batches: tasks that are counted together, and the task that follows when all of them have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from fleet import executing
from fleet.clock import Clock, SystemClock
from fleet.domain.batch import BatchRecord
from fleet.domain.task import NewTask, TaskStatus
from fleet.enqueuing import OpenTransaction, TaskOptions
from fleet.errors import NotFound, WaitTimeout
from fleet.handle import TaskHandle, check_wait, looks
from fleet.storage.interfaces import Storage

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.task import Task


class BatchHandle:
    """One batch, made by whomever."""

    def __init__(self, batch_id: str, storage: Callable[[], Storage], clock: Clock | None = None) -> None:
        self.id = batch_id
        self._storage = storage
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def record(self) -> BatchRecord:
        """Return the batch's row, its tasks counted; raise NotFound when there is none (any more)."""
        return found(self._storage(), self.id)

    def counts(self) -> dict[str, int]:
        """Return how many of its tasks are in each status that one of them is in."""
        return counts_of(self.record())

    def close(self) -> bool:
        """Say that nothing more is added: it ends with its last task; return False when it was closed before."""
        return self._storage().rules.close_batch(self.id)

    def then(self) -> TaskHandle | None:
        """Return the task that follows its end, None when there is none."""
        task_id = self.record().callback_id
        return None if task_id is None else TaskHandle(task_id, self._storage, self._clock)

    def wait(self, timeout: float | None = None) -> BatchRecord:
        """Wait until the batch is closed and all its tasks have ended; return its row (see `BatchRecord.succeeded`).

        The task that follows it may not have ended, or begun, by then.

        Args:
            timeout: seconds to wait at most; None waits for as long as it takes.

        Raises:
            WaitTimeout: it has not ended in time.
            NotFound: there is no such batch (any more).
            UsageError: it has not ended, and an executing task would wait for it without end.
        """
        storage = self._storage()
        if timeout is None and executing.current() is not None:
            record = found(storage, self.id)
            check_wait(record.ended_at is not None, f"batch {self.id}")
            return record
        return wait(storage, self.id, timeout, self._clock)


class Batch(BatchHandle):
    """A batch that is made and filled by a block: `with app.batch("nightly", then="report") as batch: ...`.

    Each enqueue in the block is a transaction of its own: tasks run while the block goes on. At its end the batch is
    closed, on an exception too: what was enqueued stays and runs, and the task that follows is not lost. A process that
    is killed in the block leaves the batch open, to be added to, and closed by `fleet batch close`.
    """

    def __init__(self, app: Fleet, batch_id: str, callback: NewTask | None) -> None:
        super().__init__(batch_id, app.storage)
        self._app = app
        self._callback = callback

    def __enter__(self) -> Batch:
        self._storage().rules.create_batch(self.id, self._callback)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def enqueue(
        self,
        name: str | Task[Any, Any],
        payload: Mapping[str, Any] | None = None,
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskHandle:
        """Enqueue one task of this batch; see `Fleet.enqueue`."""
        options["batch_id"] = self.id
        return self._app.enqueue(name, payload, transaction=transaction, connection=connection, **options)

    def enqueue_many(
        self,
        name: str | Task[Any, Any] | Iterable[Mapping[str, Any]],
        payloads: Iterable[Mapping[str, Any]] | None = None,
        *,
        transaction: OpenTransaction | None = None,
        connection: OpenTransaction | None = None,
        **options: Unpack[TaskOptions],
    ) -> list[TaskHandle]:
        """Enqueue tasks of this batch, all or none; see `Fleet.enqueue_many`."""
        options["batch_id"] = self.id
        return self._app.enqueue_many(name, payloads, transaction=transaction, connection=connection, **options)


def found(storage: Storage, batch_id: str) -> BatchRecord:
    """Return the batch's row; raise NotFound when there is none."""
    record = storage.rules.batch(batch_id)
    if record is None:
        raise NotFound(f"batch {batch_id}: no such batch in {storage.url} (ended ones are deleted after a while)")
    return record


def wait(storage: Storage, batch_id: str, timeout: float | None, clock: Clock) -> BatchRecord:
    """Return the batch's row once it has ended.

    Raises:
        WaitTimeout: it has not ended within `timeout` seconds.
        NotFound: there is no such batch.
    """
    for _ in looks(timeout, clock):
        record = found(storage, batch_id)
        if record.ended_at is not None:
            return record
    raise WaitTimeout(f"batch {batch_id} has not ended after {timeout:g} s of waiting: {_reason(record)}")


def _reason(record: BatchRecord) -> str:
    if record.closed_at is None:
        return "it is open: more may be added until it is closed (fleet batch close)"
    return f"{record.open} of its {record.size} tasks have not"


def counts_of(record: BatchRecord) -> dict[str, int]:
    """Return how many tasks are in each status that one of them is in, in the order of a task's life."""
    return {status.value: record.counts[status] for status in TaskStatus if record.counts.get(status)}
