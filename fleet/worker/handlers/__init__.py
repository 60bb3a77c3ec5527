"""What executes a task, known by its name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.domain.execution import ClaimedTask, Failure, retry_after_death
from fleet.domain.task import HandlerDefaults
from fleet.worker.record import nanoseconds
from fleet.worker.stop import GRACE


class Failed(Exception):
    """What a built-in handler raises that knows itself how its failure is to be recorded."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Handler:
    """What executes a task.

    Attributes:
        name: the name that tasks give.
        function: called with the payload as keyword arguments.
        defaults: what its tasks get when the enqueuer says nothing.
        wants_context: whether the function takes the context, as the keyword argument `ctx`.
        is_async: whether calling it returns an awaitable.
        grace: seconds that it takes to end by itself when its time is over; nobody ends it from outside before.
    """

    name: str
    function: Callable[..., Any]
    defaults: HandlerDefaults
    wants_context: bool = False
    is_async: bool = False
    grace: float = 0.0

    @property
    def time_to_end(self) -> float:
        """Seconds that an execution is given to end from within before it is ended from outside."""
        return max(self.grace, GRACE if self.is_async else 0.0)


def timeout_of(claimed: ClaimedTask, handler: Handler | None) -> float | None:
    """Return an execution's timeout in seconds, None for none; the enqueuer may not have known the handler's own."""
    if claimed.timeout_seconds is None and handler is not None:
        return handler.defaults.timeout
    return claimed.timeout_seconds


def terms_of(claimed: ClaimedTask, timeout: float | None) -> tuple[int, int]:
    """Return what a seat is told when an execution begins, in nanoseconds: its timeout, and the retry after a death."""
    retry_in = retry_after_death(claimed, random.random)
    return nanoseconds(timeout) if timeout else 0, -1 if retry_in is None else nanoseconds(retry_in)
