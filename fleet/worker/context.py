"""What a handler is told about its own execution, and what it may say of it."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fleet.clock import boottime
from fleet.domain.execution import ClaimedTask
from fleet.domain.jsontext import encode
from fleet.domain.signals import Stopped, StopReason
from fleet.errors import UsageError
from fleet.worker.own_task import OwnTask
from fleet.worker.stop import Stop

T = TypeVar("T")

PROGRESS_INTERVAL = 0.1
CHECKPOINT = "checkpoint"
MAX_STEP_NAME = 200


@dataclass(frozen=True, slots=True)
class Parent:
    """A task that the present one depends on.

    Attributes:
        task_id: its id.
        task: its handler's name.
        status: how it ended, such as `done`.
        result: what its handler returned, None when it ended without success.
        error: one line, when it ended without success.
    """

    task_id: int
    task: str
    status: str
    result: Any
    error: str | None


class Context:
    """The execution of one attempt, as its handler sees it.

    Args:
        claimed: the task.
        why_stop: returns why the execution should end early, None while it should not.
        own: the task's rows.
        timeout: seconds that the execution may take, None for any time.
        beside_others: returns whether other executions share its process now.
        had_company: returns whether others have shared it at any time.
        stop: returns the order by which the execution is to end now, with the reason; None while there is none.

    Attributes:
        task_id: the task.
        attempt: which attempt this is, from 1.
        timeout: seconds that this attempt may take; None for any time.
    """

    def __init__(
        self,
        claimed: ClaimedTask,
        why_stop: Callable[[], StopReason | None],
        own: OwnTask,
        timeout: float | None = None,
        stop: Callable[[], Stop | None] = lambda: None,
        beside_others: Callable[[], bool] = lambda: False,
        had_company: Callable[[], bool] = lambda: False,
    ) -> None:
        self._beside_others = beside_others
        self._had_company = had_company
        self._under_way: set[str] = set()
        self._stop = stop
        self.timeout = timeout
        self.task_id = claimed.task_id
        self.attempt = claimed.attempt
        self._task = claimed.task
        self._why_stop = why_stop
        self._own = own
        self._reported_at = float("-inf")
        self._claim_gone = False
        self._steps: dict[str, Any] | None = None

    @property
    def log(self) -> logging.Logger:
        """A logger of the handler's own."""
        return logging.getLogger(f"fleet.task.{self._task}")

    # Stopping

    @property
    def should_stop(self) -> bool:
        """Whether to end early: see `stop_reason`."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why to end early: `cancelled`, `claim lost`, `timed out`, or `draining` with a deadline; None to go on."""
        return StopReason.CLAIM_LOST if self._claim_gone else self._why_stop()

    @property
    def stop(self) -> Stop | None:
        """Why, and by when, the execution is to end now; None while it may go on.

        Timeout and drain deadline are told as long before as the handler's `grace` says.
        """
        return self._stop()

    @property
    def claim(self) -> str:
        """A name of this very execution, unlike that of any other: worker's life, task, claim token."""
        return self._own.claim

    @property
    def beside_others(self) -> bool:
        """Whether other executions share this process at the moment."""
        return self._beside_others()

    @property
    def had_company(self) -> bool:
        """Whether other executions have shared this process at any time since this one began."""
        return self._had_company()

    def stop_if_asked(self) -> None:
        """Leave the handler when its end is asked for.

        Raises:
            Stopped: it is: the task ends cancelled if that was asked, has failed if it timed out, or is given back
                uncounted.
        """
        if self.should_stop:
            raise Stopped

    # Progress, steps, checkpoints

    def progress(self, fraction: float | None, text: str | None = None) -> None:
        """Store how far the task is.

        Written at most every 100 ms, so it may be called in a tight loop; 1.0 is always written.

        Args:
            fraction: from 0 to 1 (cut to it), or None when unknown.
            text: one line for people.
        """
        now = boottime()
        complete = fraction is not None and fraction >= 1.0
        if not complete and now - self._reported_at < PROGRESS_INTERVAL:
            return
        self._reported_at = now
        bounded = None if fraction is None or fraction != fraction else min(1.0, max(0.0, float(fraction)))
        self._claim_gone = not self._own.progress(bounded, text)

    def step(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the stored result of a step, or run it and store what it returns.

        It is stored durably, and outlives release, retry and worker: a step that has been stored is not run again.
        The step of a coroutine function is awaited: `await ctx.step("fetch", fetch, url)`.

        Args:
            name: the step's name within the task.
            function: what it returns must be JSON.
            args: handed to the function.
            kwargs: handed to the function.

        Raises:
            Stopped: the claim is gone: whoever has the task now runs the step.
            PayloadError: the result cannot be stored.
        """
        steps = self._stored_steps()
        if inspect.iscoroutinefunction(function):
            return self._awaited_step(name, function, args, kwargs)  # type: ignore[return-value]  # what it returns
        if name not in steps:
            with self._doing(name):
                self._store(name, function(*args, **kwargs))
        found: T = steps[name]
        return found

    async def _awaited_step(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        steps = self._stored_steps()
        if name not in steps:
            with self._doing(name):
                self._store(name, await function(*args, **kwargs))
        return steps[name]

    @contextmanager
    def _doing(self, name: str) -> Iterator[None]:
        """Do a step; what could not be stored, or is being done already, is not done in the first place."""
        _check_name(name)
        self._own.check_no_transaction(name)
        if name in self._under_way:
            raise UsageError(f"step {name!r} is under way: it is done once: wait for the first call")
        self._under_way.add(name)
        try:
            yield
        finally:
            self._under_way.discard(name)

    def checkpoint(self, value: Any) -> None:
        """Store where the task stands, in place of what was stored before; errors as for `step`."""
        self._store(CHECKPOINT, value)

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` stored last, in this or an earlier attempt; None when nothing was."""
        return self._stored_steps().get(CHECKPOINT)

    def _stored_steps(self) -> dict[str, Any]:
        if self._steps is None:
            self._steps = {name: json.loads(text) for name, text in self._own.steps().items()}
        return self._steps

    def _store(self, name: str, value: Any) -> None:
        text = encode(value, f"step {name}")
        steps = self._stored_steps()
        if not self._own.save_step(name, text):
            self._claim_gone = True
            raise Stopped(f"the claim was gone when step {name} was to be stored")
        # As it will be read after a crash: what JSON makes of it.
        steps[name] = json.loads(text)

    # Others' results, and the handler's own rows

    @property
    def parents(self) -> tuple[Parent, ...]:
        """The tasks that this one depends on, by id, with their results."""
        return tuple(
            Parent(
                parent.task_id,
                parent.task,
                parent.status.value,
                None if parent.result_json is None else json.loads(parent.result_json),
                parent.error,
            )
            for parent in self._own.parents()
        )

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a transaction for the handler's last step; yields a SQLAlchemy connection.

        It is committed together with the task's completion when the handler returns, and undone when the handler
        fails, or when the claim turns out to be gone: the effects and `done` happen both or neither. Others wait for
        it, on SQLite all who write.

        Raises:
            UsageError: one is open already.
        """
        transaction = self._own.open_transaction()
        try:
            yield transaction.connection
        except BaseException:
            self._own.roll_back()
            raise


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_STEP_NAME or not name.isprintable():
        raise UsageError(f"step {name!r}: give a name of 1 to {MAX_STEP_NAME} printable characters")
