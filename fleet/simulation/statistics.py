"""What a handler's executions took, by minute, as `work_minute` has it."""

from __future__ import annotations

from collections import deque

MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
"""Durations are measured over the last hour, or else over the last day."""


class Statistics:
    """Executions of one handler in one queue; lanes that differ in what they require share them."""

    def __init__(self) -> None:
        self._minute = 0.0
        self._busy = 0.0
        self._done = 0
        self._minutes: deque[tuple[float, float, int]] = deque()
        self._hour = (0.0, 0)

    def add(self, seconds: float, now: float) -> None:
        """Count an execution of so many seconds that has just ended."""
        if now >= self._minute + MINUTE:
            self._turn(now)
        self._busy += seconds
        self._done += 1

    def busy(self, since: float, now: float) -> float | None:
        """Return the seconds of executions that ended since then; None where none did."""
        if now >= self._minute + MINUTE:
            self._turn(now)
        busy, done = self._busy, self._done
        for minute, before, number in reversed(self._minutes):
            if minute < since:
                break
            busy += before
            done += number
        return busy if done else None

    def seconds(self, now: float) -> float | None:
        """Return how long an execution took on average lately; None where there was none for a day."""
        if now >= self._minute + MINUTE:
            self._turn(now)
        busy, done = self._hour
        if not done + self._done:
            busy, done = self._sum(DAY)
        done += self._done
        return (busy + self._busy) / done if done else None

    def _turn(self, now: float) -> None:
        if self._done:
            self._minutes.append((self._minute, self._busy, self._done))
        self._busy, self._done, self._minute = 0.0, 0, now // MINUTE * MINUTE
        while self._minutes and self._minutes[0][0] < self._minute - DAY:
            self._minutes.popleft()
        self._hour = self._sum(HOUR)

    def _sum(self, back: float) -> tuple[float, int]:
        busy, done = 0.0, 0
        for minute, seconds, number in reversed(self._minutes):
            if minute < self._minute - back:
                break
            busy += seconds
            done += number
        return busy, done
