"""What a handler may raise to say what is to become of its task; anything else that it raises is a failed attempt."""

from __future__ import annotations

from enum import StrEnum

from fleet.domain.durations import parse_duration
from fleet.errors import UsageError


class Signal(Exception):
    """Base of what a handler raises on purpose."""


class Retry(Signal):
    """The attempt failed; the next one is to come after a time of the handler's own choice.

    Without attempts left the task has failed.
    """

    def __init__(self, after: float | str | None = None, message: str = "") -> None:
        """Say when.

        Args:
            after: seconds, or text such as `5m`; None leaves it to the task's retry policy.
            message: why, for people.

        Raises:
            UsageError: `after` is no duration.
        """
        super().__init__(message or ("tried again" if after is None else f"tried again after {after}"))
        self.after = None if after is None else _seconds("Retry(after=...)", after)


class Snooze(Signal):
    """The task is to be tried again after a time, and this attempt is not to count."""

    def __init__(self, seconds: float | str, message: str = "") -> None:
        """Say when: in seconds, or text such as `5m`; raises UsageError when it is no duration."""
        super().__init__(message or f"snoozed for {seconds}")
        self.seconds = _seconds("Snooze(...)", seconds)


class Cancel(Signal):
    """The task is not to be executed any more: it ends `cancelled`."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


class Fail(Signal):
    """The task has failed for good: no attempt would help."""

    def __init__(self, reason: str = "failed for good") -> None:
        super().__init__(reason)


class Stopped(Signal):
    """The handler left as asked: the task is given back, uncounted, or ends cancelled where that was asked."""

    def __init__(self, reason: str = "stopped as asked") -> None:
        super().__init__(reason)


class StopReason(StrEnum):
    """Why an execution should end early."""

    CANCELLED = "cancelled"
    CLAIM_LOST = "claim lost"
    TIMED_OUT = "timed out"
    DRAINING = "draining"


def _seconds(what: str, value: float | str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"{what}: {value!r}: give seconds, or text such as 5m")
    try:
        return parse_duration(value if isinstance(value, str) else f"{value:f}")
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
    except OverflowError:
        raise UsageError(f"{what}: at most ten years") from None
