"""The life of a worker: register, claim, execute, record, drain, deregister."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress

from fleet.clock import SystemClock, boottime
from fleet.domain.execution import ClaimedTask
from fleet.domain.worker import WorkerStatus
from fleet.faultpoints import reach
from fleet.storage.interfaces import Storage
from fleet.worker.alone import LoneBeats
from fleet.worker.batch import BatchRunner
from fleet.worker.board import Board
from fleet.worker.claims import Claims
from fleet.worker.concurrent import ConcurrentRunner
from fleet.worker.handlers import Handler
from fleet.worker.lanes import LearnedLanes
from fleet.worker.membership import Membership
from fleet.worker.orders import Orders
from fleet.worker.patience import TROUBLE
from fleet.worker.prefetch import Prefetch
from fleet.worker.protocol import Channels, Link
from fleet.worker.record import Ending, Phase
from fleet.worker.settings import WorkerSettings
from fleet.worker.wholeness import Wholeness

UNTIL_EMPTY_WAIT = 0.5
"""Seconds between two looks of a worker that is to end when nothing is left."""

SHORTEST_IDLE_WAIT = 0.05
UNTIL_EMPTY_HORIZON = 60.0
JUST_AFTER = 0.002

EXIT_ENDED = 0
EXIT_TROUBLE = 70
EXIT_REFUSED = 75

_REASONS = {
    Ending.DRAINED: "drained",
    Ending.RECYCLED: "recycled",
    Ending.SIGNALLED: "signalled",
    Ending.EMPTY: "the queue is empty",
    Ending.REFUSED: "refused",
}
_log = logging.getLogger("fleet.worker")


class Worker:
    """One worker: claims tasks, executes them one after the other, records how they ended.

    Args:
        settings: the group's settings.
        number: its slot.
        board: the group's shared memory.
        channels: the group's descriptors.
        open_storage: opens the database.
        handlers: what it can execute, by name.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        number: int,
        board: Board,
        channels: Channels,
        open_storage: Callable[[], Storage],
        handlers: Mapping[str, Handler],
    ) -> None:
        self._settings = settings
        self._slot = board.slots[number]
        self._handlers = handlers
        self._storage = open_storage()
        self._keeper = Link.attach(channels.notices)
        self._orders = Orders(settings, self._slot, channels.lifeline, channels.wakes[number])
        self._member = Membership(
            settings, number, self._slot, self._storage, handlers, SystemClock(), lambda: board.allocation
        )
        self._lanes = LearnedLanes(settings.offer(number, handlers), settings.weighted)
        self._claims = Claims(self._storage, self._member, self._slot, self._lanes, settings.heartbeat)
        name = settings.worker_name(number)
        believed = None if self._storage.tolerates_slow_writes else settings.lease - settings.heartbeat
        self._runner = self._make_runner(
            board,
            Wholeness(channels.for_worker(number)),
            lambda: LoneBeats(open_storage, name, self._slot, settings.heartbeat, believed),
        )
        self._ending = Ending.NONE
        self._told_at = boottime()
        self._woken_at: int | None = None
        self._was_woken = False
        self._void = False
        self._left_for: float | None = None

    def _make_runner(
        self, board: Board, wholeness: Wholeness, beat_alone: Callable[[], LoneBeats]
    ) -> BatchRunner | ConcurrentRunner:
        settings, slot, claims, orders = self._settings, self._slot, self._claims, self._orders
        if slot.is_concurrent:
            return ConcurrentRunner(slot, claims, orders, self._handlers, settings.capabilities, wholeness, beat_alone)
        prefetch = Prefetch(settings.prefetch, self._storage.largest_batch, self._overlaps)
        return BatchRunner(slot, board, self._keeper, claims, orders, self._handlers, prefetch, beat_alone, wholeness)

    @property
    def _overlaps(self) -> bool:
        """Whether ends may be written, and tasks claimed, while others are executed."""
        return self._settings.max_tasks is None and not self._storage.tolerates_slow_writes

    def run(self) -> int:
        """Live; return the exit code of the process."""
        self._orders.listen(on_parent_gone=self._runner.supervisor_gone)
        self._storage.on_wait(self._slot.beats)
        if self._slot.is_concurrent:
            self._storage.on_write(self._slot.writes)
        try:
            return self.live()
        except TROUBLE as error:
            self._runner.abandon()
            _log.error("giving up: %s", error)
            return EXIT_TROUBLE
        finally:
            self._storage.close()

    def live(self) -> int:
        """Register, execute what there is until told to end, and leave; return the exit code."""
        self._register()
        while self._ending is Ending.NONE or self._runner.in_flight:
            self._runner.run(self._claim() or self._wait_for_work())
        return self._leave()

    def _register(self) -> None:
        if not self._member.enrol(self._wanted):
            self._ending = Ending.REFUSED
            return
        _log.info("registered, incarnation %s", self._member.claimant.incarnation)
        defaults = [handler.defaults for handler in self._handlers.values()]
        self._member.patiently(lambda: self._storage.queue.declare_handlers(defaults), "declaring handlers")
        reach("worker.registered")

    def _wanted(self) -> bool:
        return self._orders.ending(0) is Ending.NONE

    def _claim(self) -> tuple[ClaimedTask, ...]:
        """Record what was executed, claim the next, and heed what the reply says of this worker itself."""
        if self._ending is Ending.NONE:
            self._ending = self._orders.ending(self._claims.recorded + len(self._claims.executed))
        limit = self._limit()
        if limit == 0 and not self._claims.executed and not self._claims.is_ahead:
            if self._is_void and self._ending is Ending.NONE:
                self._start_over()
            return ()
        self._learn_assigned()
        looked, self._was_woken = self._was_woken, False
        tasks, reply = self._claims.next(limit, looked, ahead=self._runner.overlaps)
        self._tell_keeper()
        self._left_for = None if reply is None else reply.left_for
        if reply is not None:
            self._lanes.learn(self._storage.queue, reply.max_lane_id)
            self._heed(reply.status)
        return tasks

    def _learn_assigned(self) -> None:
        """Learn the lane of what was assigned to this worker, which is claimed before all else."""
        with suppress(*TROUBLE):
            self._lanes.learn(self._storage.queue, self._slot.lane)

    @property
    def _is_void(self) -> bool:
        """Whether the registry has given up this life: what is held is no longer the worker's."""
        return self._void or self._slot.is_unknown

    def _limit(self) -> int:
        if self._ending is not Ending.NONE or self._is_void or not self._member.is_confirmed():
            return 0
        limit = self._runner.size()
        if self._settings.max_tasks is None:
            return limit
        taken = self._claims.recorded + len(self._claims.executed) + self._runner.in_flight
        return min(limit, max(0 if self._runner.in_flight else 1, self._settings.max_tasks - taken))

    def _heed(self, status: str | None) -> None:
        if status == WorkerStatus.TERMINATING and self._ending is Ending.NONE:
            self._ending = Ending.DRAINED
            self._slot.drain = 1
        elif status == WorkerStatus.TERMINATED:
            self._ending, self._member.ended = Ending.DRAINED, True
        elif status in (None, WorkerStatus.LOST):
            self._start_over()

    def _start_over(self) -> None:
        self._void = self._runner.in_flight > 0
        if self._void:
            # Its next life begins when the last execution of this one has ended, or was ended.
            self._slot.stop_all()
        elif self._ending is not Ending.NONE:
            self._member.ended = True
        elif not self._member.start_over(self._wanted):
            self._ending = Ending.REFUSED

    def _wait_for_work(self) -> tuple[ClaimedTask, ...]:
        """Say that this worker is idle, look once more, and wait to be woken; return what the look found."""
        if self._ending is not Ending.NONE or self._is_full():
            self._runner.wait_for_end()
            return ()
        self._slot.enters(Phase.IDLE)
        self._slot.idle = 1
        # Told, so that a task that is there and that nobody here may have yet does not wake it again and again.
        self._keeper.send("idle", in_vain=self._woken_at == self._claims.recorded)
        # A task that came between the last claim and the idle mark has woken nobody.
        tasks = self._claim()
        if not tasks and self._ending is Ending.NONE and not self._is_over():
            self._slot.enters(Phase.IDLE)
            woken = self._orders.wait(self._idle_wait())
            self._was_woken = woken
            self._woken_at = self._claims.recorded if woken else None
        self._slot.idle = 0
        return tasks

    def _is_full(self) -> bool:
        """Return whether nothing more can be begun before something ends."""
        return self._runner.in_flight > 0 and self._limit() == 0

    def _idle_wait(self) -> float:
        longest = max(self._settings.idle_wait, SHORTEST_IDLE_WAIT)
        if self._settings.until_empty:
            longest = min(longest, UNTIL_EMPTY_WAIT)
        wait = longest * random.uniform(0.8, 1.2)
        # What was left to somebody else is looked at again when that one has had its time.
        return wait if self._left_for is None else min(wait, self._left_for + JUST_AFTER)

    def _is_over(self) -> bool:
        """Return whether the worker ends because nothing is left to do, or soon to do."""
        if not self._settings.until_empty or self._runner.in_flight:
            return False
        try:
            left = self._storage.queue.unfinished(self._lanes.ids, UNTIL_EMPTY_HORIZON)
        except TROUBLE as error:
            _log.warning("looking for what is left failed: %s", error)
            return False
        if left == 0:
            self._ending = Ending.EMPTY
        return left == 0

    def _leave(self) -> int:
        """Record what is left, deregister, and tell the supervisor why."""
        while self._claims.executed or self._claims.is_ahead:
            self._claim()
        self._tell_keeper(last=True)
        reason = "the supervisor is gone" if self._orders.alone else _REASONS[self._ending]
        self._member.leave(reason)
        _log.info("ended: %s; %d tasks", reason, self._claims.recorded)
        self._slot.ending = self._ending
        self._slot.enters(Phase.ENDED)
        return EXIT_REFUSED if self._ending is Ending.REFUSED else EXIT_ENDED

    def _tell_keeper(self, last: bool = False) -> None:
        """Hand over what no commit has counted, at most once per heartbeat; what the keeper misses is not counted."""
        now = boottime()
        if not last and now - self._told_at < self._settings.heartbeat:
            return
        self._told_at = now
        while rows := self._claims.tally.take():
            self._keeper.send("counts", rows=rows)
