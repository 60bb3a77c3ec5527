"""Which task this thread (or coroutine) is executing."""

from __future__ import annotations

from contextvars import ContextVar, Token

_task_id: ContextVar[int | None] = ContextVar("fleet_task_id", default=None)


def current() -> int | None:
    """Return the id of the task being executed here, None outside of one."""
    return _task_id.get()


class executing:
    """Say that a `with` block executes a task.

    Args:
        task_id: the task.
    """

    __slots__ = ("_task", "_token")

    def __init__(self, task_id: int) -> None:
        self._task = task_id

    def __enter__(self) -> None:
        self._token: Token[int | None] = _task_id.set(self._task)

    def __exit__(self, *_: object) -> None:
        _task_id.reset(self._token)
