"""What may be said of a task besides its handler and payload: each option checked, in the form that it is stored in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from reprlib import Repr
from typing import Any, Literal, TypedDict

from fleet.domain.durations import MAX_SECONDS, parse_duration, parse_time
from fleet.domain.lanes import check_capability, check_name, parse_capabilities, quantity_of
from fleet.domain.retry import RetryPolicy
from fleet.domain.task import DedupeScope, ParentPolicy
from fleet.errors import UsageError
from fleet.handle import TaskHandle

MAX_KEY_CHARACTERS = 500
MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 1_000_000
MAX_ID = 2**63 - 1

Parent = int | str | TaskHandle


class TaskOptions(TypedDict, total=False):
    """What may be said of a task besides its handler and payload.

    Keys:
        queue: the queue.
        priority: higher first; default 0.
        delay: seconds from now before it may run, or text such as `5m`; excludes `at`.
        at: time before which it may not run, aware, or ISO 8601 text with a zone.
        deadline: time by which it must have begun, aware, or ISO 8601 text with a zone: later it fails unexecuted.
        requires: capabilities that a worker must offer, by name, or text such as `gpu,mem=16`.
        prefers: capabilities for which it waits a moment, in the same form: any worker takes it after that.
        max_attempts: attempts that count, at most.
        timeout: seconds per attempt, or text such as `5m`.
        retry: when to try again: a `RetryPolicy`, an object with its fields, a list of delays in seconds, or text such
            as `fixed:30`, `exponential:1:600` (first wait, longest wait) or `1,10,60`.
        dedupe_key: at most one open task of this handler with this key.
        dedupe_scope: `open` (default) counts a running task as open; `waiting` lets one wait beside one that runs.
        idempotency_key: at most one task of this handler with this key, until it is pruned.
        concurrency_key: the key by which limits count it.
        depends_on: tasks that must end first: ids, handles, or refs of tasks before it in the same call.
        on_parent_failure: what becomes of it when one of those ends without success: `cancel` (default), `fail`, `run`.
        ref: a name by which later tasks of the same call may depend on it.
        batch_id: the open batch that it belongs to.
    """

    queue: str | None
    priority: int | None
    delay: float | str | None
    at: datetime | str | None
    deadline: datetime | str | None
    requires: Mapping[str, float] | str | None
    prefers: Mapping[str, float] | str | None
    max_attempts: int | None
    timeout: float | str | None
    retry: RetryPolicy | Mapping[str, Any] | Iterable[float] | str | None
    dedupe_key: str | None
    dedupe_scope: DedupeScope | None
    idempotency_key: str | None
    concurrency_key: str | None
    depends_on: Parent | Iterable[Parent] | None
    on_parent_failure: ParentPolicy | Literal["cancel", "fail", "run"] | None
    ref: str | None
    batch_id: str | None


OPTION_NAMES = tuple(TaskOptions.__annotations__)

DECLARABLE = frozenset(
    {
        *("queue", "requires", "max_attempts", "timeout", "retry"),
        *("priority", "prefers", "dedupe_scope", "concurrency_key", "on_parent_failure"),
    }
)
"""What a declaration may say: true of all tasks of a handler, not of one of them."""


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, checked and in the form that `NewTask` has; None counts as not given.

    Raises:
        UsageError: an unknown option, or a value that makes no sense.
    """
    unknown = options.keys() - _CHECKS.keys()
    if unknown:
        raise UsageError(f"unknown option {shown(min(unknown, key=str))}: use {', '.join(OPTION_NAMES)}")
    return {name: _CHECKS[name](name, value) for name, value in options.items() if value is not None}


class _Short(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 100

    def repr(self, x: Any) -> str:
        try:
            return super().repr(x)
        except ValueError:
            # An integer of thousands of digits has no text.
            return f"a very long {type(x).__name__}"


shown = _Short().repr
"""Return a value as messages show it: cut, whatever it is."""


def _queue(name: str, value: Any) -> str:
    return check_name(name, _text(name, value))


def batch_name(name: str, value: Any) -> str:
    """Return a batch's id; raise UsageError when it can be none."""
    return check_name("batch" if name == "batch_id" else name, _text(name, value))


def _priority(name: str, value: Any) -> int:
    return _whole(name, value, -MAX_PRIORITY, MAX_PRIORITY)


def _attempts(name: str, value: Any) -> int:
    return _whole(name, value, 1, MAX_ATTEMPTS)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name} {shown(value)}: give a whole number from {least} to {most}")
    return value


def seconds(name: str, value: Any) -> float:
    """Return the seconds that a number or a text such as `5m` says; raise UsageError when it says none."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} {shown(value)}: give seconds, or text such as 5m")
    if not 0 <= value <= MAX_SECONDS:
        raise UsageError(f"{name} {shown(value)}: give 0 seconds to ten years")
    return float(value)


def _timeout(name: str, value: Any) -> float:
    limit = seconds(name, value)
    if limit <= 0:
        raise UsageError(f"{name} {shown(value)}: give more than 0 seconds")
    return limit


def _moment(name: str, value: Any) -> datetime:
    if not isinstance(value, datetime):
        return parse_time(_text(name, value))
    if value.tzinfo is None:
        raise UsageError(f"{name} {value.isoformat()} names no zone: give an aware datetime")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{name} {value.isoformat()} is beyond the calendar") from None


def _capabilities(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, str):
        return parse_capabilities(value)
    if not isinstance(value, Mapping):
        raise UsageError(
            f'{name} {shown(value)}: give capabilities by name, like {{"gpu": 1}}, or text such as gpu,mem=16'
        )
    return {check_capability(_text(name, key)): _quantity(key, item) for key, item in value.items()}


def _quantity(name: str, value: Any) -> float:
    known = isinstance(value, str | float) or (isinstance(value, int) and value.bit_length() < 64)
    return quantity_of(name, value if known else shown(value))


def _retry(name: str, value: Any) -> RetryPolicy:
    try:
        return RetryPolicy.of(_retry_of_text(name, value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} {shown(value)}: {_RETRY_FORMS}") from None


_RETRY_FORMS = "write fixed:30, exponential:1:600 (first wait, longest wait), random_exponential:1:600 or 1,10,60"
_RETRY_FIELDS: Mapping[str, tuple[str, ...]] = {
    "fixed": ("multiplier",),
    "exponential": ("multiplier", "max"),
    "random_exponential": ("multiplier", "max"),
    "incrementing": ("start", "increment", "max"),
}


def _retry_of_text(name: str, text: str) -> Any:
    """Return the object, or the list of delays, that a text such as `fixed:30` stands for."""
    wait, *values = text.split(":")
    if not values and wait not in _RETRY_FIELDS:
        return [parse_duration(delay) for delay in text.split(",")]
    fields = _RETRY_FIELDS.get(wait, ())
    if len(values) > len(fields):
        raise UsageError(f"{name} {shown(text)}: {_RETRY_FORMS}")
    given = {field: parse_duration(value) for field, value in zip(fields, values, strict=False)}
    if wait == "fixed" and "multiplier" in given:
        given["max"] = given["multiplier"]
    return {"wait": wait, **given}


def key(name: str, value: Any) -> str:
    """Return a key; raise UsageError when it can be none."""
    text = _text(name, value)
    if not 0 < len(text) <= MAX_KEY_CHARACTERS or not text.isprintable():
        raise UsageError(f"{name}: give 1 to {MAX_KEY_CHARACTERS} printable characters")
    return text


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} {shown(value)}: give a text")
    return value


def _parents(name: str, value: Any) -> tuple[int | str, ...]:
    alone = isinstance(value, int | str | TaskHandle | Mapping) or not isinstance(value, Iterable)
    return tuple(dict.fromkeys(_parent(name, item) for item in ((value,) if alone else value)))


def _parent(name: str, value: Any) -> int | str:
    if isinstance(value, TaskHandle):
        return value.id
    if isinstance(value, str):
        return key(name, value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ID:
        raise UsageError(f"{name} {shown(value)}: give ids of tasks, or refs of tasks before it in the same input")
    return value


def _choice(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise UsageError(f"{name} {shown(value)}: use {' or '.join(choices)}")
        return str(value)

    return check


def _one_of(states: type[StrEnum]) -> Callable[[str, Any], StrEnum]:
    check = _choice(tuple(states))
    return lambda name, value: states(check(name, value))


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "queue": _queue,
    "priority": _priority,
    "delay": seconds,
    "at": _moment,
    "deadline": _moment,
    "requires": _capabilities,
    "prefers": _capabilities,
    "max_attempts": _attempts,
    "timeout": _timeout,
    "retry": _retry,
    "dedupe_key": key,
    "dedupe_scope": _choice(("open", "waiting")),
    "idempotency_key": key,
    "concurrency_key": key,
    "depends_on": _parents,
    "on_parent_failure": _one_of(ParentPolicy),
    "ref": key,
    "batch_id": batch_name,
}
