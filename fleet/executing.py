"""Which task this thread (or coroutine) is executing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_task_id: ContextVar[int | None] = ContextVar("fleet_task_id", default=None)


def current() -> int | None:
    """Return the id of the task being executed here, None outside of one."""
    return _task_id.get()


@contextmanager
def executing(task_id: int) -> Iterator[None]:
    """Say that the block executes this task."""
    token = _task_id.set(task_id)
    try:
        yield
    finally:
        _task_id.reset(token)
