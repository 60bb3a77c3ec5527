"""Python functions as handlers: called with the payload's members by name."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from fleet.worker.handlers import Handler

CONTEXT_NAME = "ctx"


def call(handler: Handler, arguments: dict[str, Any]) -> Any:
    """Call the handler's function and return its value; a coroutine runs to its end in an event loop of its own."""
    value = handler.function(**arguments)
    return asyncio.run(value) if handler.is_async else value


def mismatch(handler: Handler, arguments: dict[str, Any]) -> str | None:
    """Return how `arguments` do not fit the function's signature, None when they do."""
    try:
        inspect.signature(handler.function).bind(**arguments)
    except TypeError as error:
        return str(error)
    except ValueError:
        # A function written in C may not say what it takes.
        return None
    return None
