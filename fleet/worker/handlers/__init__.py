"""What executes a task, known by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.domain.execution import Failure
from fleet.domain.task import HandlerDefaults


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
