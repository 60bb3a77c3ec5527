"""The keeper: the one process of a worker group that talks to the database for all of it."""

from __future__ import annotations

import logging
import random
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fleet.clock import SystemClock, boottime
from fleet.domain.group import LIVE_GROUPS, GroupOrders, GroupStatus
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.spreading import spreading_of
from fleet.errors import FleetError
from fleet.storage.interfaces import Storage, Watch
from fleet.worker.batches import BatchWatch
from fleet.worker.beats import Heartbeats
from fleet.worker.board import Board
from fleet.worker.contact import give_up, introduce
from fleet.worker.duties import Duties
from fleet.worker.errands import Errands
from fleet.worker.glances import Glances
from fleet.worker.lanes import LearnedLanes
from fleet.worker.metrics import Metrics
from fleet.worker.patience import TROUBLE, patiently
from fleet.worker.protocol import Channels, GroupEnd, Link
from fleet.worker.record import now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.told import Told
from fleet.worker.upkeep import Upkeep
from fleet.worker.waking import Waker

EXIT_DATABASE = 3
_log = logging.getLogger("fleet.keeper")

LONGEST_WAIT = 1.0
"""Seconds for which a keeper waits on a server for rows that others hold, before it does something else first."""


class Keeper:
    """Beats, maintains, wakes, and writes what the supervisor cannot, for one worker group.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        channels: the group's descriptors.
        supervisor: the socket to the supervisor.
        supervisor_process: who the group is.
        open_storage: opens the database; makes a missing one where the argument says so.
        handlers: names of what the group's workers execute.
        known: whether the group is in the database already: a former keeper has said so.
        disk: a directory of the file system that the group cannot do without.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        board: Board,
        channels: Channels,
        supervisor: Link,
        supervisor_process: ProcessIdentity,
        open_storage: Callable[[bool], Storage],
        handlers: frozenset[str],
        known: bool,
        disk: Path,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._board = board
        self._channels = channels
        self._supervisor = supervisor
        self._group = supervisor_process
        self._open_storage = open_storage
        self._handlers = handlers
        self._known = known
        self._workers = Link.attach(channels.hearing)
        self._told = Told(settings, board, supervisor, self._workers)
        self._clock = SystemClock()
        self._duties = Duties(lambda: self._storage.now())
        self._beats: Heartbeats | None = None

    def run(self) -> int:
        """Keep the group until its supervisor says that it is over, or is gone; return the exit code."""
        self._pulse()
        try:
            self._storage = self._open_storage(self._settings.create and not self._known)
        except FleetError as error:
            self._supervisor.send("refused", exit_code=error.exit_code, message=str(error))
            return 0
        try:
            return self._keep()
        finally:
            self._storage.close()

    def _keep(self) -> int:
        self._storage.on_wait(self._pass_the_wait)
        asked = boottime()
        try:
            if not self._known:
                self._storage.registry.check_right()
            orders = introduce(self._storage.control, self._settings, self._group, self._known)
        except FleetError as error:
            self._supervisor.send("refused", exit_code=error.exit_code, message=str(error))
            return 0
        if orders is None and not self._known:
            self._supervisor.send("refused", exit_code=0, message="this launch was withdrawn: nothing is started")
            return 0
        if not self._storage.tolerates_slow_writes:
            # A row that a stranger holds is in the way of one duty: no heartbeat waits for that.
            self._storage.wait_at_most(LONGEST_WAIT)
        watch = self._storage.watch(self._settings.group_id)
        try:
            self._prepare(watch)
            self._tell_orders(orders, "go", asked)
            while self._told.finish is None and not self._told.orphaned:
                self._wait(self.run_once())
            return self._end()
        finally:
            watch.close()

    def _prepare(self, watch: Watch) -> None:
        settings = self._settings
        # Without a name: whoever has a task assigned to it is woken by the order.
        offer = replace(settings.offer(0, dict.fromkeys(self._handlers)), worker_id="")
        lanes = LearnedLanes(offer, weighted=False)
        self._watch = watch
        metrics = Metrics(self._disk, settings.max_memory_mb, inherits=self._known)
        self._beats = Heartbeats(settings, self._board, self._channels, self._storage, metrics)
        self._batches = BatchWatch(settings, self._board, self._storage.queue)
        self._errands = Errands(settings, self._board, self._channels, self._storage, self._handlers)
        self._glances = Glances(settings, self._board, self._storage)
        self._upkeep = Upkeep(self._storage, self._board, self._beat_if_due)
        self._waker = Waker(
            self._board,
            self._channels,
            self._storage,
            watch,
            lanes,
            lambda: spreading_of(self._board.allocation, settings.pool, settings.capabilities),
        )
        # Workers that have beaten before may be near their fence: their last keeper has died.
        first = 0.0 if self._known else random.uniform(0.5, 1.0)
        self._beat_at = boottime() + settings.heartbeat * first

    def run_once(self) -> float:
        """Do what is due; return seconds until the next pass at the latest."""
        self._pulse()
        delay = min(self._duties.attempt(name, duty) for name, duty in self._due())
        self._pulse()
        # Maintenance waits for what is to be written of the dead, which is tried again after its own pause.
        return min(
            delay,
            self._until(self._beat_at, "beats"),
            self._until(self._upkeep.due_at, "maintenance", "ends of workers"),
        )

    def _until(self, moment: float, *duties: str) -> float:
        return max(moment - boottime(), *(self._duties.pause(duty) for duty in duties))

    def _due(self) -> Iterator[tuple[str, Callable[[], float | None]]]:
        """Yield the duties that are due, each looked at when those before it are done."""
        if self._told.has_deaths:
            yield "ends of workers", self._write_deaths
        if self._told.drains:
            yield "orders to drain", lambda: self._told.write_drains(self._storage)
        if boottime() >= self._beat_at:
            yield "beats", self._beat
        if boottime() >= self._upkeep.due_at and not self._told.has_deaths:
            yield "maintenance", self._upkeep.run
        yield "batches", self._batches.run_once
        yield "waking", self._waker.run_once
        yield "cancelled tasks", self._glances.notice_cancels
        yield "orders to busy workers", self._errands.run_while_executing
        if self._waker.saw_change:
            yield "orders to idle workers", self._notice_orders

    # Heartbeats and orders

    def _beat(self) -> None:
        self._stop_if_replaced()
        beaten = self._beats is not None and self._beats.beat()
        self._beat_at = boottime() + self._settings.heartbeat * (random.uniform(0.9, 1.0) if beaten else 0.2)
        if not beaten:
            self._upkeep.put_off()
            return
        self._told.write_counts(self._storage)
        self._errands.run()
        asked = boottime()
        orders = self._storage.control.beat_group(self._settings.group_id, self._group)
        self._tell_orders(orders, "target", asked)

    def _tell_orders(self, orders: GroupOrders | None, kind: str, asked: float) -> None:
        """Tell the supervisor the target and when it was read; a group that is to stop, or has ended, has none."""
        if orders is not None:
            self._board.allocation = orders.allocation
        if orders is None or orders.status is GroupStatus.FAILED:
            self._supervisor.send(kind, size=0, stop=GroupEnd.GIVEN_UP, read_at=asked)
        elif orders.status not in LIVE_GROUPS:
            self._supervisor.send(kind, size=0, stop=GroupEnd.ORDERED, read_at=asked)
        else:
            self._supervisor.send(kind, size=orders.target_size, stop=GroupEnd.NONE, read_at=asked)

    def _stop_if_replaced(self) -> None:
        if self._watch.replaced():
            message = f"{self._storage.url}: what was opened there is gone, or another in its place: all is stopped"
            self._supervisor.send("abort", exit_code=EXIT_DATABASE, message=message)

    def _write_deaths(self) -> None:
        self._told.write_deaths(self._storage)

    def _notice_orders(self) -> float | None:
        """Heed what somebody has just ordered: told with the next beat, an idle worker would sit idle until then."""
        drained = self._glances.drain_ordered()
        if drained is None:
            return self._glances.until_drains
        if drained:
            self._beat_at = boottime()
        self._errands.run()
        self._waker.saw_change = False
        return None

    def _beat_if_due(self) -> None:
        """Pulse, write who has died, and beat when it is time: called in the pauses of longer work."""
        self._pulse()
        # What the supervisor has ended is written as such before maintenance finds it dead, and charges it.
        self._told.hear_supervisor()
        self._write_deaths()
        if boottime() >= self._beat_at:
            self._beat()

    def _pulse(self) -> None:
        self._board.keeper_pulse = now_ns()

    def _pass_the_wait(self) -> None:
        """Called again and again while something waits for the write lock: what can be read stands for beats."""
        self._pulse()
        if self._beats is not None:
            self._beats.believe_while_waiting()

    # Listening

    def _wait(self, seconds: float) -> None:
        """Wait for messages or commits, at most so long."""
        poll = select.poll()
        told = (self._supervisor.fileno(), self._workers.fileno())
        for descriptor in (*told, self._waker.descriptor()):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        ends = boottime() + seconds
        while True:
            heard = self._polled(poll, min(ends - boottime(), self._waker.until_asked()))
            # A commit that does not show yet is no reason for a pass, only for asking again soon; nor is one that shows
            # while looking at the queue has just failed.
            noticed = self._waker.notices() and not self._duties.pause("waking")
            if noticed or boottime() >= ends or any(descriptor in told for descriptor in heard):
                break
        self._told.hear_supervisor()
        for in_vain in self._told.hear_workers():
            self._waker.idle_notice(in_vain)

    def _polled(self, poll: select.poll, seconds: float) -> list[int]:
        """Return which descriptors are ready, after so many seconds at most; a poll waits for whole milliseconds."""
        if 0 < seconds < 0.001:
            self._clock.sleep(seconds)
            seconds = 0.0
        return [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]

    def _end(self) -> int:
        """Write what is left and mark the group ended; without a supervisor, leave at once: workers beat alone."""
        if self._told.finish is None:
            _log.warning("the supervisor is gone: its workers finish what they execute")
            give_up(self._storage.control, self._settings.group_id, self._group, self._clock)
            return 0
        self._told.hear_workers()
        self._told.write_counts(self._storage)
        control, group, exit_code = self._storage.control, self._settings.group_id, self._told.finish["exit_code"]
        try:
            self._patiently(self._write_deaths, "writing how workers ended")
            self._patiently(lambda: control.end_group(group, exit_code=exit_code), "ending the group")
        except TROUBLE as error:
            _log.error("the group's end could not be written (%s): its lease will tell", error)
            return 1
        return 0

    def _patiently(self, operation: Callable[[], object], what: str) -> None:
        patiently(operation, what, self._settings.lease, self._clock, self._pulse)
