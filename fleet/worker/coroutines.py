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
    """An event loop in a thread of its own, made when the first coroutine comes."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[asyncio.Task[Any], Callable[[], object]] = {}

    def run(self, execution: Coroutine[Any, Any, Any], must_end: Callable[[], object]) -> None:
        """Run a coroutine in the loop; cancel it, once, when `must_end` is true."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="fleet-coroutines", daemon=True).start()
            asyncio.run_coroutine_threadsafe(self._look_at_all(), self._loop)
        self._loop.call_soon_threadsafe(self._begin, self._loop, execution, must_end)

    def _begin(
        self, loop: asyncio.AbstractEventLoop, execution: Coroutine[Any, Any, Any], must_end: Callable[[], object]
    ) -> None:
        task = loop.create_task(execution)
        self._running[task] = must_end
        task.add_done_callback(lambda task: self._running.pop(task, None))

    async def _look_at_all(self) -> None:
        # One for all: a thousand coroutines that each look for themselves would keep a core busy.
        while True:
            await asyncio.sleep(BETWEEN_LOOKS_AT_ALL)
            for task in [task for task, must_end in self._running.items() if must_end()]:
                del self._running[task]
                task.cancel()
