"""From a schedule, as a person or a row gives it, to the task that it enqueues: all of it is checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleet.domain.cron import check_cron, zone_of
from fleet.domain.durations import MAX_SECONDS
from fleet.domain.jsontext import decode_object, encode
from fleet.domain.lanes import check_capability, check_name, quantity_of
from fleet.domain.retry import RetryPolicy
from fleet.domain.schedule import Schedule
from fleet.domain.task import NewTask
from fleet.errors import UsageError

LEAST_INTERVAL = 1.0
"""Seconds: every tick is a row and a task."""

_MAX_WHOLE = 1_000_000
_MAX_KEY_CHARACTERS = 500


def task_of(schedule: Schedule) -> NewTask:
    """Return the task that each tick of a schedule enqueues.

    Raises:
        UsageError: the schedule makes no sense; the message names it.
    """
    try:
        check_name("schedule", schedule.name)
        check_name("task", schedule.task)
        _check_times(schedule)
        payload = encode(decode_object(schedule.payload_json, "payload"), "payload")
        return NewTask(task=schedule.task, payload_json=payload, **_read(schedule.options))
    except UsageError as error:
        raise UsageError(f"schedule {schedule.name[:100]}: {error}") from None


def _check_times(schedule: Schedule) -> None:
    zone_of(schedule.tz)
    if (schedule.cron is None) == (schedule.every_seconds is None):
        raise UsageError("give cron or an interval, one of the two")
    if schedule.cron is not None:
        check_cron(schedule.cron)
    elif not LEAST_INTERVAL <= (schedule.every_seconds or 0) <= MAX_SECONDS:
        raise UsageError(f"every {schedule.every_seconds} s: give {LEAST_INTERVAL:g} s to ten years")


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = options.keys() - _READERS.keys()
    if unknown:
        raise UsageError(f"option {min(unknown)[:100]!r} is none for a schedule: use {', '.join(_READERS)}")
    return {name: _READERS[name](name, value) for name, value in options.items() if value is not None}


def options_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form of `NewTask` as JSON values, as a schedule has them; raise UsageError for bad ones."""
    values = {
        name: value.as_json()
        if isinstance(value, RetryPolicy)
        else dict(value)
        if isinstance(value, Mapping)
        else value
        for name, value in options.items()
    }
    _read(values)
    return values


def _name(name: str, value: Any) -> str:
    return check_name(name, _text(name, value))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}: give a text")
    return value


def _key(name: str, value: Any) -> str:
    text = _text(name, value)
    if not 0 < len(text) <= _MAX_KEY_CHARACTERS or not text.isprintable():
        raise UsageError(f"{name}: give 1 to {_MAX_KEY_CHARACTERS} printable characters")
    return text


def _whole(least: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_WHOLE:
            raise UsageError(f"{name}: give a whole number from {least} to {_MAX_WHOLE}")
        return value

    return read


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise UsageError(f"{name}: give more than 0 seconds, at most ten years")
    return float(value)


def _capabilities(name: str, value: Any) -> dict[str, float]:
    return {check_capability(key): quantity_of(key, number) for key, number in _object(name, value).items()}


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: give an object")
    return value


def _retry(name: str, value: Any) -> RetryPolicy:
    try:
        return RetryPolicy.of(_object(name, value))
    except (TypeError, ValueError):
        raise UsageError(f"{name}: give an object with the fields of a retry policy") from None


def _scope(name: str, value: Any) -> str:
    if value not in ("open", "waiting"):
        raise UsageError(f"{name}: use open or waiting")
    return str(value)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "queue": _name,
    "priority": _whole(-_MAX_WHOLE),
    "requires": _capabilities,
    "prefers": _capabilities,
    "max_attempts": _whole(1),
    "timeout": _seconds,
    "retry": _retry,
    "dedupe_key": _key,
    "dedupe_scope": _scope,
    "concurrency_key": _key,
}

OPTION_NAMES = tuple(_READERS)
"""What a schedule may say of its tasks; a time, a key of one task or a parent would hold for one tick only."""
