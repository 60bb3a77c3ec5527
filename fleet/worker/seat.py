"""A seat: where a worker executes one task, as shared memory shows it: one, or as many as --concurrency says."""

from __future__ import annotations

from enum import IntEnum

from fleet.domain.execution import Fence
from fleet.worker.record import Cells, Word, now_ns

SEAT_WORDS = 16


class SeatState(IntEnum):
    """What happens in a seat."""

    FREE = 0
    HELD = 1
    EXECUTING = 2
    ENDED = 3


class Seat(Cells):
    """The record of one execution.

    The worker writes what is executed before the state that says so, so that whoever finds a seat EXECUTING finds all
    of it. What others ask of an execution names its claim, and does not reach the next one.
    """

    state = Word(0)  # by the worker, as are those up to `grace`
    task_id = Word(1)
    token = Word(2)
    started = Word(3)
    timeout = Word(4)  # 0 for none
    retry_in = Word(5)  # if the attempt dies; negative when it was the last
    grace = Word(6)  # after timeout, lost claim and so on: how long the worker has to end the execution itself
    stop_at = Word(7)  # by the keeper: when the claim was found gone, written before the claim itself
    stop_token = Word(8)
    stop_task = Word(9)
    cancel_at = Word(10)  # by the keeper: when the end was asked for, written before the claim itself
    cancel_token = Word(11)
    cancel_task = Word(12)

    @property
    def fence(self) -> Fence:
        """The claim in this seat."""
        return Fence(self.task_id, self.token)

    @property
    def is_executing(self) -> bool:
        """Whether the claim is being executed."""
        return self.state == SeatState.EXECUTING

    @property
    def is_taken(self) -> bool:
        """Whether a claim is held here, begun or not, ended and not yet recorded included."""
        return self.state != SeatState.FREE

    @property
    def is_cancelled(self) -> bool:
        """Whether the end of the present execution is asked for."""
        return self.task_id != 0 and self.cancel_task == self.task_id and self.cancel_token == self.token

    @property
    def is_stopped(self) -> bool:
        """Whether the claim of the present execution is gone."""
        return self.task_id != 0 and self.stop_task == self.task_id and self.stop_token == self.token

    # The worker's side

    def take(self, fence: Fence) -> None:
        """Hold a claim here."""
        self.state = SeatState.FREE
        self.task_id, self.token = fence.task_id, fence.claim_token
        self.state = SeatState.HELD

    def take_and_begin(
        self, task_id: int, token: int, started: int, timeout: int, retry_in: int, grace: int = 0
    ) -> None:
        """Hold a claim and say that it is executed from now on: `take` and `begin`, written at once; see there."""
        cells, base = self.cells, self.base
        cells[base] = SeatState.FREE
        cells[base + 1] = task_id
        cells[base + 2] = token
        cells[base + 3] = started
        cells[base + 4] = timeout
        cells[base + 5] = retry_in
        cells[base + 6] = grace
        cells[base] = SeatState.EXECUTING

    def begin(self, started: int, timeout: int, retry_in: int, grace: int = 0) -> None:
        """Say that what is held here is executed from now on; times in nanoseconds."""
        self.started = started
        self.timeout = timeout
        self.retry_in = retry_in
        self.grace = grace
        self.state = SeatState.EXECUTING

    def end(self) -> None:
        """Say that the execution is over."""
        self.state = SeatState.ENDED

    def free(self) -> None:
        """Forget what was here."""
        self.state = SeatState.FREE
        self.task_id = self.token = 0

    # The keeper's side

    def stop(self) -> None:
        """Have the present execution ended: its claim is gone. What is said again keeps its time."""
        if not self.is_stopped:
            self.stop_task = 0
            self.stop_at = now_ns()
            self.stop_token = self.token
            self.stop_task = self.task_id

    def cancel(self, fence: Fence) -> None:
        """Ask for the end of an execution; what is asked again keeps its time."""
        if (self.cancel_task, self.cancel_token) != (fence.task_id, fence.claim_token):
            self.cancel_task = 0
            self.cancel_at = now_ns()
            self.cancel_token = fence.claim_token
            self.cancel_task = fence.task_id
