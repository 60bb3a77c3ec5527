"""What an enqueuer holds of its task: its id, and ways to ask how it went."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from fleet import executing
from fleet.clock import Clock, SystemClock
from fleet.domain.task import FINAL_STATUSES, Answer, TaskRecord, TaskStatus
from fleet.errors import NotFound, TaskFailed, UsageError, WaitTimeout
from fleet.storage.interfaces import Storage

SHORTEST_WAIT = 0.005
LONGEST_WAIT = 0.5
GROWTH = 1.5


_CLOCK = SystemClock()


class TaskHandle:
    """One enqueued task; handles of one task are equal.

    Attributes:
        id: the task's id.
        existed: whether enqueuing met a task with the same dedupe or idempotency key, which this one is.
    """

    __slots__ = ("_clock", "_storage", "existed", "id")

    def __init__(
        self, task_id: int, storage: Callable[[], Storage], clock: Clock | None = None, *, existed: bool = False
    ) -> None:
        self.id = task_id
        self.existed = existed
        self._storage = storage
        self._clock = clock or _CLOCK

    def __repr__(self) -> str:
        return f"TaskHandle({self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskHandle) and (self.id, self._storage) == (other.id, other._storage)

    def __hash__(self) -> int:
        return hash(self.id)

    def record(self) -> TaskRecord:
        """Return the task's row; raise NotFound when there is none (any more)."""
        return found(self._storage(), self.id)

    def status(self) -> str:
        """Return the task's status, such as `pending`; raise NotFound when there is no such task (any more)."""
        return self.record().status.value

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the task is done and return what its handler returned.

        Args:
            timeout: seconds to wait at most; None waits for as long as it takes.

        Raises:
            TaskFailed: it ended as failed or cancelled.
            WaitTimeout: it has not ended in time.
            NotFound: there is no such task (any more).
            UsageError: it has not ended, and an executing task would wait for it without end: the worker's place that
                it keeps meanwhile may be the one in which the other would run.
        """
        storage = self._storage()
        if timeout is None and executing.current() is not None:
            record = found(storage, self.id)
            check_wait(record.status in FINAL_STATUSES, f"task {self.id}")
            return outcome(record)
        return outcome(wait(storage, self.id, timeout, self._clock))

    def cancel(self) -> Answer:
        """Cancel the task: at once unless it runs; then its worker is asked to stop it (see `Answer.obeyed`)."""
        (answer,) = self._storage().queue.cancel([self.id])
        return answer

    def retry(self) -> Answer:
        """Put the task, if it has failed or was cancelled, back into the queue; see `Answer.obeyed`."""
        (answer,) = self._storage().queue.retry([self.id])
        return answer


def check_wait(ended: bool, what: str) -> None:
    """Raise UsageError when the executing task would wait for something without end."""
    waiting = executing.current()
    if waiting is not None and not ended:
        raise UsageError(
            f"task {waiting} would wait in a worker for {what}, which may need that very worker: give a timeout, "
            "or enqueue what is to follow with depends_on"
        )


def found(storage: Storage, task_id: int) -> TaskRecord:
    """Return the task's row; raise NotFound when there is none."""
    record = storage.queue.get(task_id)
    if record is None:
        raise NotFound(f"task {task_id}: no such task in {storage.url} (finished ones are deleted after a while)")
    return record


def wait(storage: Storage, task_id: int, timeout: float | None, clock: Clock) -> TaskRecord:
    """Return the task's row once it has ended; looks again after waits that grow from 5 ms to 0.5 s.

    Raises:
        WaitTimeout: it has not ended within `timeout` seconds.
        NotFound: there is no such task.
    """
    for _ in looks(timeout, clock):
        record = found(storage, task_id)
        if record.status in FINAL_STATUSES:
            return record
    raise WaitTimeout(f"task {task_id} ({record.task}) is still {record.status} after {timeout:g} s of waiting")


def looks(timeout: float | None, clock: Clock) -> Iterator[None]:
    """Yield at once, then after waits that grow from 5 ms to 0.5 s, the last time at the end of `timeout` seconds."""
    deadline = None if timeout is None else clock.boottime() + timeout
    pause = SHORTEST_WAIT
    while True:
        yield
        left = pause if deadline is None else deadline - clock.boottime()
        if left <= 0:
            return
        clock.sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_WAIT)


def outcome(record: TaskRecord) -> Any:
    """Return the result of a task that has ended; raise TaskFailed when it ended without one."""
    if record.status is TaskStatus.DONE:
        return None if record.result_json is None else json.loads(record.result_json)
    reason = f": {record.error}" if record.error else ""
    attempts = f" after {record.attempt} of {record.max_attempts} attempts" if record.attempt else ""
    raise TaskFailed(f"task {record.task_id} ({record.task}) {record.status}{attempts}{reason}", record.error_kind)
