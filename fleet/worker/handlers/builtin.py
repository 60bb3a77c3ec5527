"""Handlers that every worker has: for trying out, and for measuring."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from fleet.clock import SystemClock
from fleet.domain.task import HandlerDefaults
from fleet.worker.handlers import Handler


class OrderedFailure(Exception):
    """What `fleet.fail` raises."""


def noop(**_payload: Any) -> None:
    """Do nothing with any payload."""


def echo(**payload: Any) -> dict[str, Any]:
    """Return the payload."""
    return payload


def sleep(seconds: float = 1.0) -> float:
    """Wait so many seconds; return them."""
    SystemClock().sleep(float(seconds))
    return seconds


def fail(message: str = "failed as ordered") -> None:
    """Fail with a message."""
    raise OrderedFailure(message)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fleet.noop": noop,
    "fleet.echo": echo,
    "fleet.sleep": sleep,
    "fleet.fail": fail,
}

BUILTINS = tuple(
    Handler(
        name=name,
        function=function,
        defaults=HandlerDefaults(name=name, signature=str(signature(function, eval_str=True)).replace("typing.", "")),
    )
    for name, function in _FUNCTIONS.items()
)
