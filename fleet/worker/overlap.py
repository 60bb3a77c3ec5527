"""Recording and claiming while tasks are executed: worth while where tasks are tiny, and where a server does the work.

What a worker has executed, and a claim, are sent to the server; it then executes what it has claimed before, and reads
the reply when that is done. So it holds one batch, and a second one is on its way.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fleet.clock import boottime
from fleet.domain.execution import ClaimReply
from fleet.domain.lanes import LaneClaim
from fleet.faultpoints import reach
from fleet.storage.interfaces import Ahead, WorkQueue
from fleet.worker.executor import Execution
from fleet.worker.membership import Membership
from fleet.worker.patience import TROUBLE
from fleet.worker.slot import Slot

SENDS_NOTHING_FOR = 1.0
"""Seconds for which nothing is sent after that could not be done, or not all of it was ordinary."""

_log = logging.getLogger("fleet.worker")


class Message(NamedTuple):
    """Ends and a claim.

    Attributes:
        ahead: what is sent.
        executed: the executions whose ends it has.
        made_at: boot time in seconds.
    """

    ahead: Ahead
    executed: Sequence[Execution]
    made_at: float


class Landing(NamedTuple):
    """What became of a message.

    Attributes:
        reply: the reply; an empty one where nothing of it was done, or nobody knows.
        recorded: the executions whose ends were written.
        left: those whose ends are to be written again.
    """

    reply: ClaimReply
    recorded: Sequence[Execution]
    left: Sequence[Execution]


class Overlap:
    """What one worker has sent and not read yet, and what it has claimed so and does not hold yet.

    Args:
        queue: the queue.
        membership: whose claims they are.
        slot: the worker's record in shared memory.
        wanted: returns what a claim of so many tasks names, and how many it may bring.
    """

    def __init__(
        self,
        queue: WorkQueue,
        membership: Membership,
        slot: Slot,
        wanted: Callable[[int], tuple[tuple[LaneClaim, ...], int]],
    ) -> None:
        self._queue = queue
        self._membership = membership
        self._slot = slot
        self._wanted = wanted
        self._sent: list[Message] = []
        self._claimed: tuple[ClaimReply, float] | None = None
        self._sends_from = 0.0

    @property
    def is_ahead(self) -> bool:
        """Whether something was claimed, or asked for, that is not held yet."""
        return bool(self._sent) or self._claimed is not None

    @property
    def in_flight(self) -> int:
        """How many messages were sent whose reply is not read: one, or a moment long two."""
        return len(self._sent)

    @property
    def records(self) -> bool:
        """Whether ends are on their way."""
        return any(message.executed for message in self._sent)

    def message(self, executed: Sequence[Execution], limit: int) -> Message | None:
        """Return the ends and a claim of so many tasks, to be sent; None where there is more to do than that."""
        now = boottime()
        if now < self._sends_from:
            return None
        finishes = [execution.finish(now, random.random) for execution in executed]
        ahead = self._queue.prepare_ahead(self._membership.claiming(), finishes, *self._wanted(limit))
        return None if ahead is None else Message(ahead, executed, now)

    def send(self, message: Message) -> bool:
        """Send a message, unless what was sent before brings less than a batch; return whether it is on its way."""
        if self.is_ahead and self._brings() < 2:
            return False
        if message.executed:
            reach("worker.executed")
        self._slot.ahead = 1
        try:
            is_sent = message.ahead.send()
        except TROUBLE as error:
            _log.warning("nothing could be sent ahead: %s", error)
            is_sent = False
        if is_sent:
            self._sent.append(message)
        else:
            self._sends_from = boottime() + SENDS_NOTHING_FOR
            self._show()
        return is_sent

    def _brings(self) -> int:
        """Wait for what was sent; return how many tasks have been claimed so."""
        return self._sent[0].ahead.count() if self._sent else len(self._claimed[0].tasks) if self._claimed else 0

    def land(self) -> Landing:
        """Wait for the reply to what was sent first, and read it."""
        message = self._sent.pop(0)
        reply = self._reply(message)
        if message.executed:
            reach("worker.recorded")
        recorded = message.executed
        left: Sequence[Execution] = ()
        if len(reply.accepted) < len(recorded):
            self._sends_from = boottime() + SENDS_NOTHING_FOR
            recorded = [one for one in message.executed if one.claimed.fence in reply.accepted]
            left = [one for one in message.executed if one.claimed.fence not in reply.accepted]
        if reply.tasks:
            reach("worker.claimed")
            self._claimed = reply, message.made_at
        self._show()
        return Landing(reply, recorded, left)

    def _reply(self, message: Message) -> ClaimReply:
        try:
            reply = message.ahead.reply()
        except TROUBLE as error:
            # What it may have claimed, the next beats find that nobody holds, and give it back.
            _log.warning("the reply to what was sent ahead is lost: %s", error)
            return ClaimReply()
        return reply or ClaimReply()

    def claimed(self) -> tuple[ClaimReply, float] | None:
        """Return what was claimed ahead, for its worker to hold, and when it was asked for (boot seconds)."""
        found, self._claimed = self._claimed, None
        self._show()
        return found

    def _show(self) -> None:
        self._slot.ahead = int(self.is_ahead)
