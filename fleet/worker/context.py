"""What a handler is told about its own execution, and what it may say of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fleet.clock import boottime

PROGRESS_INTERVAL = 0.1


class Context:
    """The execution of one attempt, as its handler sees it.

    Args:
        task_id: the task.
        attempt: which attempt this is, from 1.
        task: the handler's name.
        stop_asked: returns whether the execution should end early.
        report: stores progress; returns False when the claim is gone.
    """

    def __init__(
        self,
        task_id: int,
        attempt: int,
        task: str,
        stop_asked: Callable[[], bool],
        report: Callable[[float | None, str | None], bool],
    ) -> None:
        self.task_id = task_id
        self.attempt = attempt
        self.log = logging.getLogger(f"fleet.task.{task}")
        self._stop_asked = stop_asked
        self._report = report
        self._reported_at = float("-inf")
        self._claim_gone = False

    @property
    def should_stop(self) -> bool:
        """Whether to end early: the claim is gone (the result would be dropped), or a drain has a deadline."""
        return self._claim_gone or self._stop_asked()

    def progress(self, fraction: float | None, text: str | None = None) -> None:
        """Store how far the task is.

        Written at most every 100 ms, so it may be called in a tight loop; 1.0 is always written.

        Args:
            fraction: from 0 to 1 (cut to it), or None when unknown.
            text: one line for people.
        """
        now = boottime()
        complete = fraction is not None and fraction >= 1.0
        if not complete and now - self._reported_at < PROGRESS_INTERVAL:
            return
        self._reported_at = now
        bounded = None if fraction is None or fraction != fraction else min(1.0, max(0.0, float(fraction)))
        self._claim_gone = not self._report(bounded, text)
