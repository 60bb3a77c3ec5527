"""The waiting line of one kind of task: who waits since when, who runs, and what a pass reads of it."""

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
from fleet.simulation.statistics import Statistics

if TYPE_CHECKING:
    from fleet.simulation.crew import Worker


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
        statistics: what executions of its handler took, those of other lanes included.
    """

    def __init__(self, number: int, kind: Kind, statistics: Statistics) -> None:
        self.number = number
        self.kind = kind
        self.statistics = statistics
        self.lane = Lane(number + 1, kind.queue, kind.task, kind.requires)
        self.arrived = array("d")
        self.lasting = array("d")
        self.head = 0
        self.running = 0
        self.begun: deque[tuple[float, Worker, int]] = deque()
        self._again: list[int] = []

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
        self.statistics.add(seconds, now)

    @property
    def weight(self) -> int:
        """What part of its handler's busy time is taken to be this lane's: statistics know no requirements."""
        return self.pending + self.running + 1

    def work(self, now: float, since: float, weights: int) -> Work | None:
        """Return what a pass sees of it; None where nothing is open, and nothing was done lately.

        Args:
            now: the time of the pass.
            since: from when on executions and arrivals are counted.
            weights: those of all lanes of this handler.
        """
        busy = self.statistics.busy(since, now)
        if busy is None and not self.pending and not self.running:
            return None
        return Work(
            self.kind.queue,
            self.kind.task,
            self.kind.requires,
            pending=self.pending,
            running=self.running,
            seconds=self.statistics.seconds(now),
            busy=(busy or 0.0) * self.weight / weights,
            arrivals=len(self.arrived) - bisect_left(self.arrived, since),
            longest_running=self._longest(now),
        )

    def _longest(self, now: float) -> float:
        begun = self.begun
        while begun and begun[0][1].token != begun[0][2]:
            begun.popleft()
        if len(begun) > 4 * self.running + 1000:
            # Behind one that lasts long, many that have ended.
            self.begun = begun = deque(each for each in begun if each[1].token == each[2])
        return now - begun[0][0] if begun else 0.0
