"""What executing a task once comes to, whatever its handler does."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from fleet import executing
from fleet.domain.execution import ClaimedTask, Failure, Withdrawal
from fleet.domain.signals import Cancel, Fail, Retry, Signal, Snooze, Stopped
from fleet.domain.task import HandlerDefaults, TaskStatus
from fleet.errors import UsageError
from fleet.worker.context import Context
from fleet.worker.executor import Execution, execute
from fleet.worker.handlers import Handler


def claimed(payload_json: str = "{}", **given: Any) -> ClaimedTask:
    """A claim of task 7 with one attempt of three spent."""
    return ClaimedTask(
        **{
            "task_id": 7,
            "claim_token": 3,
            "task": "t",
            "queue": "default",
            "payload_json": payload_json,
            "attempt": 1,
            "max_attempts": 3,
            "interruptions": 0,
            "retry_json": None,
            "timeout_seconds": None,
            **given,
        }
    )


def run(function: Callable[..., Any] | None, task: ClaimedTask | None = None, *, is_async: bool = False) -> Execution:
    """Execute a task by a function; None: by nobody."""
    task = task or claimed()
    handler = Handler("t", function, HandlerDefaults("t"), is_async=is_async) if function else None
    return execute(handler, task, lambda: Context(task, lambda: None, None))  # type: ignore[arg-type]


def raising(error: BaseException) -> Callable[[], None]:
    """A handler that raises this."""

    def handler() -> None:
        raise error

    return handler


def failure(execution: Execution) -> Failure:
    """Return the failure that it came to."""
    assert isinstance(execution.outcome, Failure)
    return execution.outcome


def test_a_result_is_stored_as_json() -> None:
    """What the handler returns becomes JSON text; nothing is no result."""
    assert json.loads(str(run(lambda: {"a": [1, "é"]}).outcome)) == {"a": [1, "é"]}
    assert run(lambda: None).outcome is None
    assert run(lambda: None).succeeded


@pytest.mark.parametrize(
    ("signal", "outcome"),
    [
        (Retry(after=30, message="not yet"), Failure("Retry", "not yet", retry_in=30.0)),
        (Retry("5m"), Failure("Retry", "tried again after 5m", retry_in=300.0)),
        (Retry(), Failure("Retry", "tried again")),
        (Fail("no use"), Failure("Fail", "no use", final=True)),
        (Snooze(10), Withdrawal(TaskStatus.SCHEDULED, "snoozed for 10", retry_in=10.0)),
        (Cancel("too late"), Withdrawal(TaskStatus.CANCELLED, "too late")),
        (Stopped(), Withdrawal(TaskStatus.PENDING, "stopped as asked")),
    ],
)
def test_signals(signal: Signal, outcome: Failure | Withdrawal) -> None:
    """Each signal says what is to become of the task, and with which reason."""
    assert run(raising(signal)).outcome == outcome


@pytest.mark.parametrize("after", [-1, math.nan, math.inf, "soon", "", True, [1], 1e12])
def test_times_that_make_no_sense_are_refused(after: Any) -> None:
    """Retry and Snooze with what is no duration are usage errors where they are made: the task fails, saying so."""
    with pytest.raises(UsageError, match=r"Retry\(after=\.\.\.\): "):
        Retry(after=after)
    with pytest.raises(UsageError, match=r"Snooze\(\.\.\.\): "):
        Snooze(after)
    assert failure(run(lambda: Snooze(after))).kind == "UsageError"


def test_a_signal_without_its_inheritance_fails_its_task() -> None:
    """A subclass that forgets to initialise what it inherits is the task's failure, not the worker's (RT07)."""

    class Careless(Retry):
        def __init__(self) -> None:
            pass

    found = failure(run(raising(Careless())))
    assert (found.kind, found.final) == ("bad_signal", True)
    assert found.error.startswith("Careless cannot be heeded: AttributeError")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "result: nan at $ is"),
        ({"a": [math.inf]}, "result: inf at $.a[0] is"),
        ({"a": "\ud800"}, "result: the text at $.a contains a lone surrogate"),
        ({"a": object()}, "result: object at $.a is not JSON"),
        (b"\xff", "result: "),
        ({1: 2}, "result: "),
    ],
)
def test_a_result_that_cannot_be_stored_is_a_failure(value: Any, words: str) -> None:
    """A result that is no JSON fails the task for good, naming the place in it (PL02, PL03, PL06)."""
    found = failure(run(lambda: value))
    assert (found.kind, found.final) == ("bad_result", True)
    assert words in found.error


def test_a_result_that_breaks_when_it_is_read_is_a_failure() -> None:
    """A result whose own code fails when it is encoded fails its task (RT07)."""

    class Trap(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("not now")

    found = failure(run(lambda: Trap(a=1)))
    assert (found.kind, found.final) == ("bad_result", True)


class Unspeakable(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("one\ntwo"), "ValueError", "ValueError: one two"),
        (SystemExit("bye"), "SystemExit", "SystemExit: bye"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
        (Unspeakable(), "Unspeakable", "Unspeakable: (its message cannot be shown: str() of it raises)"),
    ],
)
def test_whatever_is_raised_is_a_failure(error: BaseException, kind: str, text: str) -> None:
    """Exceptions that end programs, and those that cannot be shown, are failures with a line and a traceback (RT07)."""
    found = failure(run(raising(error)))
    assert (found.kind, found.error) == (kind, text)
    assert found.traceback
    assert not found.final


@pytest.mark.parametrize("payload", ["[1]", "{", "null", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_a_payload_that_is_no_object_is_a_failure(payload: str) -> None:
    """A payload that a stranger wrote wrongly fails its task for good, and its handler is not called (RT07)."""
    called = []
    found = failure(run(lambda **arguments: called.append(arguments), claimed(payload)))
    assert (found.kind, found.final, called) == ("bad_payload", True, [])


def test_a_payload_that_does_not_fit_is_a_failure() -> None:
    """Arguments that the handler does not take fail its task for good; its own TypeErrors do not."""
    found = failure(run(lambda: None, claimed('{"a": 1}')))
    assert (found.kind, found.final) == ("bad_payload", True)
    assert failure(run(raising(TypeError("inside")))).kind == "TypeError"


def test_an_unknown_handler_is_a_failure() -> None:
    """A task whose handler this worker does not have fails for good (RT07)."""
    found = failure(run(None))
    assert (found.kind, found.final) == ("unknown_handler", True)


def test_the_executing_task_is_known_to_what_it_calls() -> None:
    """While a handler runs, sync or async, its task is the current one; before and after there is none."""

    async def later() -> int | None:
        return executing.current()

    assert executing.current() is None
    assert run(executing.current).outcome == "7"
    assert run(later, is_async=True).outcome == "7"
    assert executing.current() is None


@pytest.mark.parametrize("had_company", [True, False])
def test_a_cancelled_coroutine_is_charged_if_it_never_had_company(had_company: bool) -> None:
    """A coroutine that somebody cancelled is given back uncounted where others were executed in its process at any
    time, even if the last of them has ended a moment before; alone all the time it has failed."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    task = claimed()
    handler = Handler("t", cancelled, HandlerDefaults("t"), is_async=True)
    context = Context(task, lambda: None, None, had_company=lambda: had_company)  # type: ignore[arg-type]
    outcome = execute(handler, task, lambda: context).outcome
    assert isinstance(outcome, Withdrawal if had_company else Failure)
