"""Python functions as handlers: called with the payload's members by name."""

from __future__ import annotations

import inspect
from typing import Any

from fleet.worker.handlers import Handler

CONTEXT_NAME = "ctx"


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
