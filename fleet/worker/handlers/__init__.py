"""What executes a task, known by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.domain.execution import ClaimedTask
from fleet.domain.task import HandlerDefaults


@dataclass(frozen=True, slots=True)
class Handler:
    """What executes a task.

    Attributes:
        name: the name that tasks give.
        function: called with the payload as keyword arguments.
        defaults: what its tasks get when the enqueuer says nothing.
        wants_context: whether the function takes the context, as the keyword argument `ctx`.
        is_async: whether calling it returns an awaitable.
    """

    name: str
    function: Callable[..., Any]
    defaults: HandlerDefaults
    wants_context: bool = False
    is_async: bool = False


def timeout_of(claimed: ClaimedTask, handler: Handler | None) -> float | None:
    """Return an execution's timeout in seconds, None for none; the enqueuer may not have known the handler's own."""
    if claimed.timeout_seconds is None and handler is not None:
        return handler.defaults.timeout
    return claimed.timeout_seconds
