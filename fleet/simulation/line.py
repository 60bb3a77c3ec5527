"""The waiting line of one kind of task: who waits since when, who runs, and the statistics that a pass reads."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from fleet.domain.demand import Work
from fleet.domain.lanes import Lane
from fleet.simulation.scenario import Kind

if TYPE_CHECKING:
    from fleet.simulation.crew import Worker

MINUTE = 60.0
REMEMBERED = 60
"""Minutes over which the duration of a kind's tasks is measured, as far as there are any."""


class Line:
    """Tasks of one kind.

    Attributes:
        number: its place among the kinds.
        kind: what the tasks are.
        arrived: when each task that has arrived so far did.
        lasting: how long each takes, in the same order.
        head: the first that has not begun; those that were interrupted come before it.
        running: how many run.
        begun: (when, by whom, token of the execution), in order; ended ones leave it when it is looked at.
    """

    def __init__(self, number: int, kind: Kind) -> None:
        self.number = number
        self.kind = kind
        self.lane = Lane(number + 1, kind.queue, kind.task, kind.requires)
        self.arrived = array("d")
        self.lasting = array("d")
        self.head = 0
        self.running = 0
        self.begun: deque[tuple[float, Worker, int]] = deque()
        self._again: list[int] = []
        self._minutes: deque[tuple[float, float, int]] = deque()
        self._busy = 0.0
        self._done = 0
        self._minute = 0.0

    @property
    def pending(self) -> int:
        """How many wait."""
        return len(self.arrived) - self.head + len(self._again)

    def oldest(self) -> float | None:
        """Return since when the first waits; None where none does."""
        if self._again:
            return self.arrived[self._again[0]]
        return self.arrived[self.head] if self.head < len(self.arrived) else None

    def waiting(self) -> Iterator[float]:
        """Yield since when those wait that have never begun."""
        return iter(self.arrived[self.head :])

    def take(self) -> tuple[int, bool]:
        """Take the first that waits; return its place in the line, and whether it begins for the first time."""
        if self._again:
            return heappop(self._again), False
        self.head += 1
        return self.head - 1, True

    def give_back(self, place: int) -> None:
        """Put a task that was interrupted back to where it stood."""
        self.running -= 1
        heappush(self._again, place)

    def finish(self, seconds: float, now: float) -> None:
        """Count an execution that has ended."""
        self.running -= 1
        if now >= self._minute + MINUTE:
            self._turn(now)
        self._busy += seconds
        self._done += 1

    def _turn(self, now: float) -> None:
        if self._done:
            self._minutes.append((self._minute, self._busy, self._done))
        self._busy, self._done, self._minute = 0.0, 0, now // MINUTE * MINUTE
        while self._minutes and (self._minutes[0][0] < now - REMEMBERED * MINUTE or len(self._minutes) > REMEMBERED):
            self._minutes.popleft()

    def work(self, now: float, since: float) -> Work:
        """Return what a pass sees of it.

        Args:
            now: the time of the pass.
            since: from when on executions and arrivals are counted.
        """
        if now >= self._minute + MINUTE:
            self._turn(now)
        return Work(
            self.kind.queue,
            self.kind.task,
            self.kind.requires,
            pending=self.pending,
            running=self.running,
            seconds=self._measured(),
            busy=self._busy + sum(busy for minute, busy, _ in self._minutes if minute >= since),
            arrivals=len(self.arrived) - bisect_left(self.arrived, since),
            longest_running=self._longest(now),
        )

    def _measured(self) -> float | None:
        done = self._done + sum(number for _, _, number in self._minutes)
        return (self._busy + sum(busy for _, busy, _ in self._minutes)) / done if done else None

    def _longest(self, now: float) -> float:
        begun = self.begun
        while begun and begun[0][1].token != begun[0][2]:
            begun.popleft()
        if len(begun) > 4 * self.running + 1000:
            # Behind one that lasts long, many that have ended.
            self.begun = begun = deque(each for each in begun if each[1].token == each[2])
        return now - begun[0][0] if begun else 0.0
