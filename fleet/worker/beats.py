"""The keeper's heartbeats: on evidence, one statement for all workers of the group, and what the registry answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet import process
from fleet.domain.execution import Fence
from fleet.domain.worker import Beat, BeatReply, WorkerStatus
from fleet.faultpoints import reach
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.metrics import Metrics
from fleet.worker.patience import TROUBLE
from fleet.worker.protocol import Channels
from fleet.worker.record import Reading, Running, nanoseconds, now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot

SHORTEST_SILENCE = 2.0
"""Seconds without a pulse that are never held against anybody."""

_NOT_MOVING = (None, "T", "t", "Z", "X")
_log = logging.getLogger("fleet.keeper")


def silence_allowed(heartbeat: float) -> float:
    """Return seconds without a pulse after which a process counts as stuck."""
    return max(2 * heartbeat, SHORTEST_SILENCE)


def shows_life(reading: Reading, process_state: str | None, now: int, heartbeat: float) -> bool:
    """Return whether there is evidence that a worker can still do its work.

    A handler that holds the interpreter lets no pulse through: within its timeout it is believed.

    Args:
        reading: the worker's record.
        process_state: the kernel's letter for the process, None when there is none.
        now: boot time in nanoseconds.
        heartbeat: seconds between beats.
    """
    if process_state in _NOT_MOVING:
        return False
    silence = nanoseconds(silence_allowed(heartbeat))
    if now - reading.pulse <= silence:
        return True
    return any(one.timeout == 0 or now - one.started <= one.timeout + silence for one in reading.running)


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    number: int
    slot: Slot
    reading: Reading

    def beat(self, metrics: Mapping[str, Any] | None) -> Beat:
        reading = self.reading
        executing = reading.executing
        return Beat(
            self.name,
            reading.incarnation,
            held=tuple((fence.task_id, fence.claim_token) for fence in reading.held),
            current_task_id=executing.task_id if executing else None,
            idle=not reading.held,
            tasks_done=reading.done,
            tasks_failed=reading.failed,
            metadata=metrics,
        )


class Heartbeats:
    """Beats for the group's workers.

    Args:
        settings: the group's settings.
        board: the group's shared memory.
        channels: the group's descriptors.
        storage: the store.
        metrics: measures the workers.
    """

    def __init__(
        self, settings: WorkerSettings, board: Board, channels: Channels, storage: Storage, metrics: Metrics
    ) -> None:
        self._metrics = metrics
        self._settings = settings
        self._board = board
        self._channels = channels
        self._storage = storage
        self._reading = False
        self._read_again_at = 0
        self._failing = False

    def beat(self) -> bool:
        """Beat for every worker that shows life, and pass on what the registry answers.

        Returns:
            False when the beats could not be written: try again soon.
        """
        members = self._living()
        measured = self._measured(members)
        asked = now_ns()
        try:
            reach("keeper.beat")
            beats = [member.beat(measured.get(member.reading.incarnation)) for member in members]
            replies = self._storage.registry.beat(beats)
        except TROUBLE as error:
            self._failed(error)
            self._believe_what_can_be_read(members)
            return False
        if self._failing and beats:
            _log.info("heartbeats are written again")
            self._failing = False
        for member, reply in zip(members, replies, strict=True):
            self._apply(member, reply, asked)
        return True

    def _measured(self, members: Sequence[_Member]) -> Mapping[str, Mapping[str, Any]]:
        try:
            return self._metrics.measure([member.reading for member in members])
        except Exception:
            # Whatever a host says of itself, no beat is lost over it.
            _log.exception("the workers could not be measured")
            return {}

    def _living(self) -> list[_Member]:
        now = now_ns()
        members = []
        for number, slot in enumerate(self._board.slots):
            reading = slot.read()
            if reading is None or not reading.is_registered:
                continue
            if shows_life(reading, process.state(reading.pid), now, self._settings.heartbeat):
                members.append(_Member(self._settings.worker_name(number), number, slot, reading))
        return members

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            _log.warning("heartbeats could not be written: %s; trying again", error)
        self._failing = True

    def _apply(self, member: _Member, reply: BeatReply, asked: int) -> None:
        slot, reading = member.slot, member.reading
        if not reply.known:
            slot.mark_unknown(reading.incarnation)
            self._stop(member, reading.running)
            self._channels.wake(member.number)
            return
        self._confirm(slot, asked)
        self._stop(member, [one for one in reading.running if one.fence.task_id in reply.lost_tasks])
        for fence in reply.cancelled_tasks:
            slot.cancel(fence)
        if reply.released_tasks:
            _log.warning("%s: tasks %s were claimed without its knowing; given back", member.name, reply.released_tasks)
        if reply.status is WorkerStatus.TERMINATING and not slot.drain:
            self._drain(member, reply)

    def _confirm(self, slot: Slot, asked: int) -> None:
        # A beat that waited long was asked for before what has been read meanwhile.
        slot.fence_at = max(slot.fence_at, asked + nanoseconds(self._settings.lease - self._settings.heartbeat))

    def _stop(self, member: _Member, executions: Sequence[Running]) -> None:
        """Have ended what the worker executes without a claim, if it still does."""
        for execution in executions:
            member.slot.stop(execution.fence)

    def _drain(self, member: _Member, reply: BeatReply) -> None:
        seconds = self._settings.drain_timeout
        if reply.drain_deadline_at is not None:
            seconds = max(0.0, (reply.drain_deadline_at - self._storage.now()).total_seconds())
        if seconds is not None:
            member.slot.drain_deadline = now_ns() + nanoseconds(seconds)
        member.slot.drain = 1
        self._channels.wake(member.number)

    def believe_while_waiting(self) -> None:
        """Read what would fence a worker soon, in the pauses of a wait for the write lock."""
        now, margin = now_ns(), nanoseconds(self._settings.lease) // 2
        if self._reading or now < self._read_again_at:
            return
        members = [member for member in self._living() if member.slot.fence_at < now + margin]
        self._read_again_at = now + nanoseconds(self._settings.heartbeat) // 4
        if members:
            self._believe_what_can_be_read(members)

    def _believe_what_can_be_read(self, members: Sequence[_Member]) -> None:
        """Where writes only wait, let workers go on whose rows say that they are active and their claims theirs."""
        if not self._storage.tolerates_slow_writes:
            return
        # A read may itself have to wait, and is then in one of the pauses that called for it.
        self._reading = True
        try:
            for member in members:
                asked = now_ns()
                if self._reads_well(member):
                    member.slot.fence_at = asked + nanoseconds(self._settings.lease - self._settings.heartbeat)
        except TROUBLE:
            return
        finally:
            self._reading = False

    def _reads_well(self, member: _Member) -> bool:
        reading = member.reading
        if not self._storage.registry.verify(member.name, reading.incarnation).known:
            return False
        return all(self._is_held(one.fence, reading.incarnation) for one in reading.running)

    def _is_held(self, fence: Fence, incarnation: str) -> bool:
        row = self._storage.queue.get(fence.task_id)
        return row is not None and row.claim_token == fence.claim_token and row.incarnation == incarnation
