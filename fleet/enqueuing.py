"""From what a person or a program writes to a task to enqueue: the one place where options are checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypedDict

from fleet.domain.durations import parse_duration, parse_time
from fleet.domain.jsontext import encode
from fleet.domain.lanes import check_name, parse_capabilities, quantity_of
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import NewTask
from fleet.errors import UsageError

# A Transaction of the storage, or a SQLAlchemy connection of the caller's: SQLAlchemy's types stay out of this layer.
OpenTransaction: TypeAlias = Any

MAX_KEY_CHARACTERS = 500
MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 1_000_000


class TaskOptions(TypedDict, total=False):
    """What may be said of a task besides its handler and payload.

    Keys:
        queue: the queue.
        priority: higher first; default 0.
        delay: seconds from now before it may run, or text such as `5m`; excludes `at`.
        at: time before which it may not run, aware, or ISO 8601 text with a zone.
        requires: capabilities that a worker must offer, by name, or text such as `gpu,mem=16`.
        max_attempts: attempts that count, at most.
        timeout: seconds per attempt, or text such as `5m`.
        retry: when to try again.
        dedupe_key: at most one open task of this handler with this key.
        idempotency_key: at most one task of this handler with this key, until it is pruned.
    """

    queue: str | None
    priority: int | None
    delay: float | str | None
    at: datetime | str | None
    requires: Mapping[str, float] | str | None
    max_attempts: int | None
    timeout: float | str | None
    retry: RetryPolicy | Mapping[str, Any] | None
    dedupe_key: str | None
    idempotency_key: str | None


OPTION_NAMES = tuple(TaskOptions.__annotations__)


def new_task(name: str, payload: Mapping[str, Any], options: Mapping[str, Any]) -> NewTask:
    """Return the task to enqueue.

    Args:
        name: the handler's name.
        payload: the keyword arguments.
        options: as in `TaskOptions`; None counts as not given.

    Raises:
        PayloadError: the payload cannot be stored.
        UsageError: a bad name, an unknown option, or a value that makes no sense.
    """
    check_name("task", name)
    payload = as_payload(name, payload)
    given = checked(options)
    if "delay" in given and "at" in given:
        raise UsageError(f"task {name}: give delay or at, not both")
    return NewTask(task=name, payload_json=encode(payload, "payload"), **given)


def as_payload(name: str, payload: Any) -> dict[str, Any]:
    """Return a task's payload as a dict with text keys; raise UsageError when it is none."""
    if not isinstance(payload, Mapping) or not all(isinstance(key, str) for key in payload):
        raise UsageError(f"task {name}: the payload must be an object whose keys are texts: the arguments by name")
    return dict(payload)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, checked and in the form that `NewTask` has.

    Raises:
        UsageError: an unknown option, or a value that makes no sense.
    """
    unknown = options.keys() - _CHECKS.keys()
    if unknown:
        raise UsageError(f"unknown option {min(unknown)!r}: use {', '.join(OPTION_NAMES)}")
    return {name: _CHECKS[name](name, value) for name, value in options.items() if value is not None}


def _queue(name: str, value: Any) -> str:
    return check_name(name, _text(name, value))


def _priority(name: str, value: Any) -> int:
    return _whole(name, value, -MAX_PRIORITY, MAX_PRIORITY)


def _attempts(name: str, value: Any) -> int:
    return _whole(name, value, 1, MAX_ATTEMPTS)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name} {value!r}: give a whole number from {least} to {most}")
    return value


def seconds(name: str, value: Any) -> float:
    """Return the seconds that a number or a text such as `5m` says; raise UsageError when it says none."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} {value!r}: give seconds, or text such as 5m")
    # A number goes through its text: the same bounds hold, and nan and inf have none.
    return parse_duration(f"{value:f}")


def _timeout(name: str, value: Any) -> float:
    limit = seconds(name, value)
    if limit <= 0:
        raise UsageError(f"{name} {value!r}: give more than 0 seconds")
    return limit


def _moment(name: str, value: Any) -> datetime:
    if not isinstance(value, datetime):
        return parse_time(_text(name, value))
    if value.tzinfo is None:
        raise UsageError(f"{name} {value.isoformat()} names no zone: give an aware datetime")
    return value.astimezone(UTC)


def _requires(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, str):
        return parse_capabilities(value)
    if not isinstance(value, Mapping):
        raise UsageError(f'{name} {value!r}: give capabilities by name, like {{"gpu": 1}}, or text such as gpu,mem=16')
    return {check_name("capability", _text(name, key)): quantity_of(key, item) for key, item in value.items()}


def _retry(name: str, value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    try:
        return RetryPolicy(**value)
    except TypeError:
        raise UsageError(
            f'{name} {value!r}: give a RetryPolicy, or an object like {{"wait": "fixed", "multiplier": 5}}'
        ) from None


def _key(name: str, value: Any) -> str:
    text = _text(name, value)
    if not 0 < len(text) <= MAX_KEY_CHARACTERS or not text.isprintable():
        raise UsageError(f"{name}: give 1 to {MAX_KEY_CHARACTERS} printable characters")
    return text


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} {value!r}: give a text")
    return value


_CHECKS = {
    "queue": _queue,
    "priority": _priority,
    "delay": seconds,
    "at": _moment,
    "requires": _requires,
    "max_attempts": _attempts,
    "timeout": _timeout,
    "retry": _retry,
    "dedupe_key": _key,
    "idempotency_key": _key,
}
