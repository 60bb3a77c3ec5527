"""What tells a worker to end, and the one place where it waits."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from fleet.clock import boottime
from fleet.domain.signals import StopReason
from fleet.worker.alone import PARENT_GONE, ask_for_news_of_parent
from fleet.worker.enforcement import CANCEL_GRACE
from fleet.worker.memory import Memory
from fleet.worker.record import Ending, nanoseconds, now_ns
from fleet.worker.seat import Seat
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot
from fleet.worker.stop import Stop


class Orders:
    """Listens to the supervisor, to signals, and to the limits of the worker's own life.

    Args:
        settings: the group's settings.
        slot: the worker's record.
        lifeline: a descriptor that is at its end when the supervisor is gone.
        wake: the event counter by which the worker is woken.
    """

    def __init__(self, settings: WorkerSettings, slot: Slot, lifeline: int, wake: int) -> None:
        self._settings = settings
        self._slot = slot
        self._lifeline = lifeline
        self._wake = wake
        self._began = boottime()
        self._memory = Memory(settings.max_memory_mb, settings.processes)
        self._signalled = False
        self._on_parent_gone: Callable[[], None] = lambda: None
        self.alone = False

    def listen(self, on_parent_gone: Callable[[], None]) -> None:
        """Begin to listen to signals; `on_parent_gone` is called, in the main thread, when the supervisor dies."""
        self._on_parent_gone = on_parent_gone
        signal.signal(signal.SIGTERM, self._hear_signal)
        signal.signal(signal.SIGINT, self._hear_signal)
        signal.signal(PARENT_GONE, self._hear_parent_gone)
        ask_for_news_of_parent()

    def _hear_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True
        os.eventfd_write(self._wake, 1)

    def _hear_parent_gone(self, _number: int, _frame: object) -> None:
        if not self.alone and self._lifeline_ended():
            self.alone = True
            os.eventfd_write(self._wake, 1)
            self._on_parent_gone()

    @property
    def told_to_stop(self) -> bool:
        """Whether an order to drain, or to make room for another, is in force: nothing further is begun."""
        return self._signalled or self.alone or self._slot.drain != 0 or self._slot.replaced != 0

    def stop_reason(self, seat: Seat) -> StopReason | None:
        """Return why the execution in a seat should end early, None while it should go on."""
        if seat.is_stopped:
            return StopReason.CLAIM_LOST
        if seat.is_cancelled:
            return StopReason.CANCELLED
        if 0 < seat.timeout < now_ns() - seat.started:
            return StopReason.TIMED_OUT
        if self._slot.drain and self._slot.drain_deadline:
            return StopReason.DRAINING
        return None

    def stop(self, seat: Seat) -> Stop | None:
        """Return why, and by when, the execution in a seat is to end now; None while it may go on.

        A drain with a deadline asks at once (`stop_reason`); this waits until as long before the deadline as the
        execution takes to end.
        """
        grace = seat.grace
        match self.stop_reason(seat):
            case StopReason.CANCELLED as reason:
                return Stop(reason, seat.cancel_at / 1e9 + CANCEL_GRACE)
            case StopReason.CLAIM_LOST as reason:
                return Stop(reason, (seat.stop_at + grace) / 1e9)
            case StopReason.TIMED_OUT as reason:
                return Stop(reason, (seat.started + seat.timeout + grace) / 1e9, timeout=seat.timeout / 1e9)
            case StopReason.DRAINING as reason if now_ns() >= self._slot.drain_deadline - grace:
                return Stop(reason, self._slot.drain_deadline / 1e9)
            case _:
                return None

    def ending(self, executed: int) -> Ending:
        """Return why the worker is to end now, if it is.

        Args:
            executed: tasks that it has executed so far.
        """
        if not self.alone:
            self.alone = self._lifeline_ended()
        if self.alone or self._slot.drain:
            return Ending.DRAINED
        if self._signalled:
            # Nobody said that the group is to be smaller: the supervisor puts another worker into this place.
            return Ending.SIGNALLED
        return Ending.RECYCLED if self._slot.replaced or self._has_served(executed) else Ending.NONE

    def _has_served(self, executed: int) -> bool:
        settings = self._settings
        return (
            (settings.max_tasks is not None and executed >= settings.max_tasks)
            or (settings.max_age is not None and boottime() - self._began >= settings.max_age)
            or (executed > 0 and self._memory.is_too_much())
        )

    def _lifeline_ended(self) -> bool:
        return _readable([self._lifeline], 0.0)

    def wait(self, seconds: float) -> bool:
        """Wait until somebody wakes the worker or the supervisor goes; return whether that was so.

        The pulse goes on meanwhile.
        """
        deadline = now_ns() + nanoseconds(seconds)
        while not self.told_to_stop:
            left = (deadline - now_ns()) / 1e9
            if left <= 0:
                return False
            if _readable([self._wake, self._lifeline], min(left, self._settings.heartbeat)):
                self._forget_wakes()
                return True
            self._slot.beats()
        return True

    def wait_for_end(self) -> None:
        """Wait until an execution ends or somebody wakes the worker, whatever it was told, at most a heartbeat."""
        if _readable([self._wake], self._settings.heartbeat):
            self._forget_wakes()
        self._slot.beats()

    def wake(self) -> None:
        """End the wait; for other threads of the worker."""
        os.eventfd_write(self._wake, 1)

    def _forget_wakes(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return


def _readable(descriptors: list[int], seconds: float) -> bool:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(max(0.0, seconds) * 1000))
