"""Trying again when the database does not answer: bounded, with jitter; costs nothing while all is well."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from fleet.clock import Clock
from fleet.errors import DatabaseError

T = TypeVar("T")

TROUBLE = (DatabaseError, ConnectionError)
"""What an operation raises when the database was not reached, or its reply was lost."""

_LONGEST_PAUSE = 2.0
_log = logging.getLogger("fleet.worker")


def patiently(operation: Callable[[], T], what: str, limit: float, clock: Clock, pulse: Callable[[], None]) -> T:
    """Return what `operation` returns, trying again for up to `limit` seconds.

    Args:
        operation: a transaction that may be repeated.
        what: what it does, for the log.
        limit: seconds after which its error is raised.
        clock: for the pauses.
        pulse: called before every pause.
    """
    try:
        return operation()
    except TROUBLE as error:
        _log.warning("%s failed (%s): trying again for up to %.0f s", what, error, limit)
    return _again(operation, limit, clock, pulse)


def _again(operation: Callable[[], T], limit: float, clock: Clock, pulse: Callable[[], None]) -> T:
    # Imported here because the normal path never needs it.
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

    again = Retrying(
        retry=retry_if_exception_type(TROUBLE),
        stop=stop_after_delay(limit),
        wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
        sleep=clock.sleep,
        before=lambda _state: pulse(),
        reraise=True,
    )
    return again(operation)
