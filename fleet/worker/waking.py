"""Waking idle workers when there is something to do: only while somebody is idle does the keeper watch."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fleet.clock import boottime
from fleet.domain.lanes import LaneClaim
from fleet.domain.spreading import Spreading
from fleet.storage.interfaces import Storage, Watch
from fleet.worker.board import Board
from fleet.worker.lanes import LearnedLanes
from fleet.worker.protocol import Channels

_log = logging.getLogger("fleet.keeper")

BETWEEN_LOOKS = 0.001
WHILE_BUSY = 1.0
"""Seconds between two looks for due tasks while nobody is idle."""
SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 1.0
"""Seconds before the next look when workers were woken in vain: what they saw waits for others, or for a while."""


class Waker:
    """Watches the queue for the idle workers of the group.

    Args:
        board: the group's shared memory.
        channels: the group's descriptors.
        storage: the store.
        watch: notices commits.
        lanes: what the group's workers serve.
        spreading: returns how their claims spread now; None where they take what is next.
    """

    def __init__(
        self,
        board: Board,
        channels: Channels,
        storage: Storage,
        watch: Watch,
        lanes: LearnedLanes,
        spreading: Callable[[], Spreading | None] = lambda: None,
    ) -> None:
        self._spreading = spreading
        self._board = board
        self._channels = channels
        self._queue = storage.queue
        self._schedules = storage.schedules
        self._watch = watch
        self._lanes = lanes
        self._watching = False
        self._look_at = 0.0
        self._pause = 0.0
        self._looked_at = float("-inf")
        self._due_at: float | None = None
        self._changed = False
        self._asked_at = float("-inf")
        self._obstacle: str | None = None
        self.saw_change = False

    def descriptor(self) -> int | None:
        """Return what to listen to for commits; None while nobody is idle."""
        return self._watch.fileno() if self._watching else None

    def idle_notice(self, in_vain: bool) -> None:
        """Take note that a worker became idle: what came just before that is looked for.

        Args:
            in_vain: whether it had been woken and found nothing that it may take. Without a pause it would be woken for
                the same task again and again.
        """
        self._pause = min(max(2 * self._pause, SHORTEST_PAUSE), LONGEST_PAUSE) if in_vain else 0.0
        self._look_at = min(self._look_at, self._looked_at + self._pause)

    def until_asked(self) -> float:
        """Return seconds until the watch wants to be asked by `notices`; it is not asked while nobody is idle."""
        if not self._watching:
            return float("inf")
        return max(0.0, self._asked_at + self._watch.poll_interval() - boottime())

    def notices(self) -> bool:
        """Ask the watch, where it has told of something or wants to be asked: is a commit there to be looked at now?

        Cheap, unlike a pass, which looks at the queue when this was true.
        """
        if self._watching and (self._watch.fileno() is not None or self.until_asked() <= 0):
            self._asked_at = boottime()
            self._changed = self._watch.changed() or self._changed
        return self._changed and boottime() - self._looked_at >= BETWEEN_LOOKS

    def run_once(self) -> float:
        """Wake as many idle workers as there is work for; return seconds until the next pass at the latest."""
        idle = [number for number, slot in enumerate(self._board.slots) if slot.idle]
        if not idle:
            # What was noticed is nobody's affair any more: who becomes idle is looked for anyway.
            self._watching = self._changed = False
            return self._advance_while_busy()
        self._watching = True
        self._attend()
        now = boottime()
        if now - self._looked_at < BETWEEN_LOOKS:
            return BETWEEN_LOOKS
        # The baseline is taken before the look: what is committed after it shows as a change.
        changed, self._changed = self.notices(), False
        self.saw_change = self.saw_change or changed
        waited = self._lanes.has_preferring and now - self._looked_at >= WHILE_BUSY
        if changed or self._is_due(now) or waited or now >= self._look_at:
            self._look_at = float("inf")
            self._looked_at = now
            self._look(idle)
        wait = min(self._until_due(), max(BETWEEN_LOOKS, self._look_at - boottime()))
        return min(wait, WHILE_BUSY) if self._lanes.has_preferring else wait

    def _attend(self) -> None:
        self._watch.attend()
        obstacle, before = self._watch.obstacle(), self._obstacle
        self._obstacle = obstacle
        if obstacle is not None and obstacle != before:
            _log.warning(obstacle)

    def _look(self, idle: list[int]) -> None:
        # Who can be woken is, before anything else is asked.
        found = self._wake(idle)
        advanced = self._advance_if_due()
        if (self._lanes.learn(self._queue) or advanced) and found < len(idle):
            found = self._wake(idle)
        if not found:
            self._pause = 0.0

    def _wake(self, idle: list[int]) -> int:
        """Wake as many of these workers as there are tasks; return how many are awake."""
        lanes = self._lanes.to_claim()
        found = self._claimable(lanes, len(idle)) if lanes else 0
        for number in idle[:found]:
            if self._board.slots[number].idle:
                self._board.slots[number].idle = 0
                self._channels.wake(number)
        return found

    def _claimable(self, lanes: tuple[LaneClaim, ...], limit: int) -> int:
        spreading = self._spreading()
        if spreading is None:
            return self._queue.claimable(lanes, limit)
        found, left_for = self._queue.claimable_by(spreading, lanes, limit)
        if left_for is not None:
            self._look_at = min(self._look_at, boottime() + left_for + BETWEEN_LOOKS)
        return found

    def _advance_if_due(self) -> bool:
        """Do what is due; return whether anything has changed by it."""
        changed = 0
        due_in = self._queue.next_due_in()
        if due_in is not None and due_in <= 0:
            changed = self._queue.advance() + self._schedules.tick()
            due_in = self._queue.next_due_in()
            if due_in is not None and not changed:
                # What is due cannot be done, for a reason that its table tells: it is not tried without a pause.
                due_in = max(due_in, WHILE_BUSY)
        self._due_at = None if due_in is None else boottime() + due_in
        return changed > 0

    def _is_due(self, now: float) -> bool:
        return self._due_at is not None and now >= self._due_at

    def _until_due(self) -> float:
        return float("inf") if self._due_at is None else max(BETWEEN_LOOKS, self._due_at - boottime())

    def _advance_while_busy(self) -> float:
        now = boottime()
        if now - self._looked_at >= WHILE_BUSY:
            self._looked_at = now
            self._advance_if_due()
        return WHILE_BUSY
