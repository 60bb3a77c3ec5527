"""Executes one claimed task: payload in, outcome out. No database here, and no transaction while user code runs."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from fleet.clock import boottime
from fleet.domain import execution
from fleet.domain.execution import ClaimedTask, Failure, Finish, Withdrawal
from fleet.domain.jsontext import decode_object, encode
from fleet.domain.signals import Cancel, Retry, Signal, Snooze, Stopped, StopReason
from fleet.domain.task import TaskStatus
from fleet.errors import PayloadError
from fleet.executing import executing
from fleet.worker.context import Context
from fleet.worker.coroutines import until_told
from fleet.worker.handlers import Failed, Handler
from fleet.worker.handlers.python import CONTEXT_NAME, mismatch

Outcome = str | Failure | Withdrawal | None
"""What an execution comes to: a result as JSON text (None for none), a failure, or how it was withdrawn."""


_UNSUCCESSFUL = (Failure, Withdrawal)


class Execution(NamedTuple):
    """What came of executing a task once.

    Attributes:
        claimed: the task.
        outcome: the result as JSON text (None for none), the failure, or how it was withdrawn.
        began: boot time in seconds.
        seconds: how long it took.
    """

    claimed: ClaimedTask
    outcome: Outcome
    began: float
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return isinstance(self.outcome, Failure)

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return not isinstance(self.outcome, _UNSUCCESSFUL)

    def finish(self, now: float, random: Callable[[], float]) -> Finish:
        """Return the record to write at boot time `now`; `random` returns a number in [0, 1)."""
        ago = max(0.0, now - self.began)
        if isinstance(self.outcome, Failure):
            return execution.failed(self.claimed, self.outcome, self.seconds, ago, random)
        if isinstance(self.outcome, Withdrawal):
            return execution.withdrawn(self.claimed, self.outcome, self.seconds, ago)
        return execution.done(self.claimed, self.outcome, self.seconds, ago)


def execute(handler: Handler | None, claimed: ClaimedTask, context: Callable[[], Context]) -> Execution:
    """Execute a claimed task once; whatever its handler raises becomes a failure, never the worker's end.

    Args:
        handler: what executes it; None when this worker has none of that name.
        claimed: the task.
        context: makes what handlers are given that want it; not called for others, unless they fail.
    """
    worker = os.getpid()
    if handler is not None and handler.is_async:
        execution = _execute_in_loop(handler, claimed, context())
    else:
        execution = _execute(handler, claimed, context)
    if os.getpid() != worker:
        # A child that the handler forked has come back through it: it is no worker, and touches nothing of ours.
        os._exit(1 if execution.failed else 0)
    return execution


def _execute_in_loop(handler: Handler, claimed: ClaimedTask, context: Context) -> Execution:
    began = boottime()
    try:
        return asyncio.run(until_told(execute_async(handler, claimed, context), lambda: context.stop))
    except BaseException as error:
        # It has stopped its loop, or cancelled all that runs there.
        return Execution(claimed, _failure(handler, {}, error), began, boottime() - began)


def _execute(handler: Handler | None, claimed: ClaimedTask, context: Callable[[], Context]) -> Execution:
    began = boottime()
    with executing(claimed.task_id):
        outcome = _outcome(handler, claimed, context)
    return Execution(claimed, outcome, began, boottime() - began)


async def execute_async(handler: Handler, claimed: ClaimedTask, context: Context) -> Execution:
    """Execute a claimed task once whose handler is a coroutine function; see `execute`."""
    began = boottime()
    with executing(claimed.task_id):
        arguments = _arguments(handler, claimed, context)
        outcome = arguments if isinstance(arguments, Failure) else await _awaited(handler, arguments, context)
    return Execution(claimed, outcome, began, boottime() - began)


def _outcome(handler: Handler | None, claimed: ClaimedTask, make: Callable[[], Context]) -> Outcome:
    if handler is None:
        return Failure("unknown_handler", f"this worker has no handler {claimed.task}", final=True)
    context = make() if handler.wants_context else None
    arguments = _arguments(handler, claimed, context)
    if isinstance(arguments, Failure):
        return arguments
    try:
        value = handler.function(**arguments)
    except BaseException as error:
        # KeyboardInterrupt and SystemExit too: a handler that calls sys.exit() has failed, its worker has not.
        return _raised(handler, arguments, error, context or make())
    return _encoded(value)


async def _awaited(handler: Handler, arguments: dict[str, Any], context: Context) -> Outcome:
    try:
        value = await handler.function(**arguments)
    except BaseException as error:
        return _raised(handler, arguments, error, context)
    return _encoded(value)


def _arguments(handler: Handler, claimed: ClaimedTask, context: Context | None) -> dict[str, Any] | Failure:
    try:
        arguments = {} if claimed.payload_json == "{}" else decode_object(claimed.payload_json, "payload")
    except PayloadError as error:
        return Failure("bad_payload", str(error), final=True)
    if handler.wants_context:
        arguments[CONTEXT_NAME] = context
    return arguments


def _raised(handler: Handler, arguments: dict[str, Any], error: BaseException, context: Context) -> Outcome:
    """Return what it means that a handler raised `error`."""
    stopped = isinstance(error, Stopped | asyncio.CancelledError)
    if stopped and context.stop_reason is StopReason.TIMED_OUT:
        return Failure("timeout", f"timed out after {context.timeout:g} s")
    if isinstance(error, asyncio.CancelledError) and context.should_stop:
        return Withdrawal(TaskStatus.PENDING, f"its coroutine was cancelled: {context.stop_reason}")
    if isinstance(error, asyncio.CancelledError) and context.had_company:
        # Perhaps by a handler beside it: it is executed alone next, and charged if it does this to itself.
        return Withdrawal(TaskStatus.PENDING, "its coroutine was cancelled, and other handlers ran beside it")
    if isinstance(error, Signal):
        return _heeded(error)
    if isinstance(error, Failed):
        return error.failure
    return _failure(handler, arguments, error)


def _encoded(value: Any) -> str | Failure | None:
    if value is None:
        return None
    try:
        return encode(value, "result")
    except PayloadError as error:
        return Failure("bad_result", str(error), final=True)
    except Exception as error:
        # Subclasses of dict, list or str run their own code when they are read.
        return Failure("bad_result", f"the result cannot be encoded: {describe(error)}", final=True)


def _heeded(signal: Signal) -> Failure | Withdrawal:
    try:
        return _signalled(signal)
    except Exception as error:
        # A subclass that does not initialise what it inherits has no time to tell.
        return Failure("bad_signal", f"{type(signal).__name__} cannot be heeded: {describe(error)}", final=True)


def _signalled(signal: Signal) -> Failure | Withdrawal:
    """Return what the handler asked for by raising one of its signals."""
    reason = _text(signal)
    match signal:
        case Retry():
            return Failure("Retry", reason, retry_in=signal.after)
        case Snooze():
            return Withdrawal(TaskStatus.SCHEDULED, reason, retry_in=signal.seconds)
        case Cancel():
            return Withdrawal(TaskStatus.CANCELLED, reason)
        case Stopped():
            return Withdrawal(TaskStatus.PENDING, reason)
        case _:
            return Failure(type(signal).__name__, reason, final=True)


def _failure(handler: Handler, arguments: dict[str, Any], error: BaseException) -> Failure:
    if isinstance(error, TypeError) and (wrong := mismatch(handler, arguments)):
        return Failure("bad_payload", f"the payload does not fit {handler.name}: {wrong}", final=True)
    return Failure(type(error).__name__, describe(error), _traceback(error))


def describe(error: BaseException) -> str:
    """Return `Class: message` on one line, also for an exception whose own text cannot be had."""
    name, text = type(error).__name__, _text(error)
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())
    except BaseException:
        return "(its message cannot be shown: str() of it raises)"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:
        return "".join(traceback.format_tb(error.__traceback__))


def reap_leftovers() -> None:
    """Collect children that a handler left behind and that have ended: no zombie outlives its task."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
