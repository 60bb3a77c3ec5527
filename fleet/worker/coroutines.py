"""Coroutines as executions: each is cancelled when asking was not enough, which does not cost its worker's life."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BETWEEN_LOOKS = 0.1
BETWEEN_LOOKS_AT_ALL = 0.25


async def until_told(execution: Coroutine[Any, Any, T], must_end: Callable[[], object]) -> T:
    """Run a coroutine to its end; cancel it, once, when `must_end` is true. Returns what it returns."""
    task = asyncio.ensure_future(execution)
    cancelled = False
    while not task.done():
        await asyncio.wait({task}, timeout=BETWEEN_LOOKS)
        if not (cancelled or task.done()) and must_end():
            cancelled = task.cancel()
    return task.result()


class LoopThread:
    """An event loop in a thread of its own, made when the first coroutine comes; it outlives what handlers do to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[asyncio.Task[Any], Callable[[], object]] = {}

    def run(
        self, execution: Coroutine[Any, Any, Any], must_end: Callable[[], object], lost: Callable[[], object]
    ) -> None:
        """Run a coroutine in the loop.

        Args:
            execution: the coroutine.
            must_end: when this is true, it is cancelled, once.
            lost: called when it was cancelled before it had begun.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._serve, args=(self._loop,), name="fleet-coroutines", daemon=True).start()
        self._loop.call_soon_threadsafe(self._begin, self._loop, execution, must_end, lost)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._look_at_all, loop)
        while True:
            # A handler may stop the loop, which is not its own: it goes on.
            loop.run_forever()

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        execution: Coroutine[Any, Any, Any],
        must_end: Callable[[], object],
        lost: Callable[[], object],
    ) -> None:
        task = loop.create_task(execution)
        self._running[task] = must_end
        task.add_done_callback(lambda task: self._done(task, lost))

    def _done(self, task: asyncio.Task[Any], lost: Callable[[], object]) -> None:
        self._running.pop(task, None)
        if task.cancelled():
            # What had begun has told of its end itself.
            lost()

    def _look_at_all(self, loop: asyncio.AbstractEventLoop) -> None:
        # One for all: a thousand coroutines that each look for themselves would keep a core busy. No task: a handler
        # may cancel all of those.
        loop.call_later(BETWEEN_LOOKS_AT_ALL, self._look_at_all, loop)
        for task in [task for task, must_end in self._running.items() if must_end()]:
            del self._running[task]
            task.cancel()
