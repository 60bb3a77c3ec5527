"""Executing several tasks at a time in one worker: coroutines in one event loop, other handlers in threads.

For work that waits. There is no isolation: what ends the process ends them all, and then none is charged unless it was
alone or judged for itself; each of the others is claimed again and executed with nothing beside it.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fleet.clock import boottime
from fleet.domain.execution import ClaimedTask, Withdrawal
from fleet.domain.task import TaskStatus
from fleet.worker.alone import LoneBeats, Orphanhood
from fleet.worker.claims import Claims, Completion
from fleet.worker.context import Context
from fleet.worker.coroutines import LoopThread
from fleet.worker.executor import Execution, execute, execute_async, reap_leftovers
from fleet.worker.handlers import Handler, terms_of, timeout_of
from fleet.worker.orders import Orders
from fleet.worker.own_task import OwnTask
from fleet.worker.record import Phase, nanoseconds, now_ns
from fleet.worker.seat import Seat, SeatState
from fleet.worker.slot import Slot
from fleet.worker.stop import GRACE
from fleet.worker.wholeness import Wholeness


@dataclass(eq=False, slots=True)
class Flight:
    """A claimed task in its seat.

    Attributes:
        claimed: the task.
        seat: its place.
        had_company: whether others were executed beside it at any time: they may have ended a moment before it.
    """

    claimed: ClaimedTask
    seat: Seat
    had_company: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether nothing is executed beside it: it was interrupted before, perhaps by its own doing."""
        return self.claimed.interruptions > 0


class ConcurrentRunner:
    """Executes tasks beside each other, each in a seat of its own.

    Args:
        slot: the worker's record in shared memory.
        claims: where executions are handed to.
        orders: whether to go on.
        handlers: what can be executed, by name.
        capabilities: what the worker offers: what runs never needs more than that together.
        wholeness: whether this process still has what it needs.
        beat_alone: returns beats of the worker's own, for when the supervisor is gone.
    """

    def __init__(
        self,
        slot: Slot,
        claims: Claims,
        orders: Orders,
        handlers: Mapping[str, Handler],
        capabilities: Mapping[str, float],
        wholeness: Wholeness,
        beat_alone: Callable[[], LoneBeats],
    ) -> None:
        self._slot = slot
        self._claims = claims
        self._orders = orders
        self._handlers = handlers
        self._capabilities = capabilities
        self._wholeness = wholeness
        self._orphanhood = Orphanhood(beat_alone)
        self._loop = LoopThread()
        self._executing: list[Flight] = []
        self._waiting: list[Flight] = []
        self._ended: queue.SimpleQueue[tuple[Flight, Completion | Exception]] = queue.SimpleQueue()
        claims.left = self._left

    @property
    def in_flight(self) -> int:
        """How many claims are held and not handed over."""
        return len(self._executing) + len(self._waiting)

    overlaps = False

    def size(self) -> int:
        """Return how many tasks to claim: none while one is executed alone, or waits for that."""
        if self._waiting or any(flight.is_alone for flight in self._executing):
            return 0
        return sum(not seat.is_taken for seat in self._slot.seats)

    def _left(self) -> Mapping[str, float]:
        """Return what the executions in flight leave of the offer."""
        used: Counter[str] = Counter()
        for flight in (*self._executing, *self._waiting):
            used.update(self._claims.lanes.requires(flight.claimed.lane_id))
        return {name: quantity - used[name] for name, quantity in self._capabilities.items()}

    def run(self, tasks: Sequence[ClaimedTask]) -> None:
        """Begin the tasks, and take what has ended; returns at once."""
        for claimed in tasks:
            seat = self._slot.seat_of(claimed.fence)
            if seat is not None:
                self._waiting.append(Flight(claimed, seat))
        self._collect()
        if self._waiting and self._orders.told_to_stop:
            self._give_back()
        self._begin()
        self._show()

    def wait_for_end(self) -> None:
        """Wait a moment for an execution to end, if there is any."""
        if self.in_flight and self._ended.empty():
            self._orders.wait_for_end()

    def supervisor_gone(self) -> None:
        """Beat for the worker while it executes."""
        if self._executing:
            self._orphanhood.begin()

    def abandon(self) -> None:
        """Say that nothing is executed any more: the process ends for a reason that is no task's."""
        for flight in self._executing:
            flight.seat.state = SeatState.HELD

    # Beginning

    def _begin(self) -> None:
        while self._waiting and not (self._waiting[0].is_alone and self._executing):
            flight = self._waiting.pop(0)
            self._executing.append(flight)
            if len(self._executing) > 1:
                for each in self._executing:
                    each.had_company = True
            self._start(flight)
        if self._orders.alone:
            self.supervisor_gone()

    def _start(self, flight: Flight) -> None:
        claimed, handler = flight.claimed, self._handlers.get(flight.claimed.task)
        timeout = timeout_of(claimed, handler)
        flight.seat.begin(now_ns(), *terms_of(claimed, timeout), grace=nanoseconds(GRACE))
        is_async = handler is not None and handler.is_async
        own = self._claims.own_task(claimed, shares_thread=is_async)
        seat = flight.seat
        context = Context(
            claimed,
            lambda: self._orders.stop_reason(seat),
            own,
            timeout,
            lambda: self._orders.stop(seat),
            beside_others=lambda: len(self._executing) > 1,
            had_company=lambda: flight.had_company,
        )
        if handler is not None and is_async:
            execution = self._execute_async(flight, handler, context, own)
            self._loop.run(execution, lambda: context.stop, lambda: self._lost(flight, own))
        else:
            thread = threading.Thread(
                target=self._execute,
                args=(flight, handler, context, own),
                name=f"fleet-task-{claimed.task_id}",
                daemon=True,
            )
            thread.start()

    def _give_back(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._claims.give_back([flight.claimed for flight in waiting], "the worker drains")
        self._slot.free_seats([flight.claimed.fence for flight in waiting])

    # In the threads of executions

    def _execute(self, flight: Flight, handler: Handler | None, context: Context, own: OwnTask) -> None:
        with self._told(flight):
            self._end(flight, execute(handler, flight.claimed, lambda: context), own)

    async def _execute_async(self, flight: Flight, handler: Handler, context: Context, own: OwnTask) -> None:
        with self._told(flight):
            self._end(flight, await execute_async(handler, flight.claimed, context), own)

    def _lost(self, flight: Flight, own: OwnTask) -> None:
        """Give back what another handler has cancelled before it had begun."""
        nothing = Withdrawal(TaskStatus.PENDING, "its coroutine was cancelled before it had begun")
        with self._told(flight):
            self._end(flight, Execution(flight.claimed, nothing, boottime(), 0.0), own)

    @contextmanager
    def _told(self, flight: Flight) -> Iterator[None]:
        """Tell the worker's own thread of an error that is no handler's: a task would be executed for ever."""
        try:
            yield
        except Exception as error:
            self._ended.put((flight, error))
            self._orders.wake()

    def _end(self, flight: Flight, execution: Execution, own: OwnTask) -> None:
        completion = self._claims.completion(execution, own)
        # While the record still says that it executes: whatever broke this process is charged.
        self._wholeness.check(boottime())
        flight.seat.end()
        self._ended.put((flight, completion))
        self._orders.wake()

    # In the worker's own thread again

    def _collect(self) -> None:
        """Hand over what has ended."""
        while not self._ended.empty():
            flight, completion = self._ended.get()
            if isinstance(completion, Exception):
                raise RuntimeError(f"the end of task {flight.claimed.task_id} could not be noted") from completion
            self._executing.remove(flight)
            self._claims.take(completion)
        if not self._executing:
            self._orphanhood.end()
            # Not before: it would take the exit status of a child that another handler waits for.
            reap_leftovers()

    def _show(self) -> None:
        if self._executing:
            self._slot.enters(Phase.EXECUTING)
