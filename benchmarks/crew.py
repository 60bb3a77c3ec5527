"""Workers that run one loop side by side from one starting line, and remember what they executed."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from benchmarks.processes import PATIENCE, Invalid, end_with_parent


@dataclass
class Performed:
    """What one worker executed; called with a task's number it executes the task.

    Attributes:
        seconds: how long a task takes; 0 is a no-op.
        numbers: of the tasks, in their order.
        times: when each began, in nanoseconds of the monotonic clock.
    """

    seconds: float = 0.0
    numbers: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def __call__(self, number: int) -> None:
        """Execute a task."""
        self.times.append(time.monotonic_ns())
        self.numbers.append(number)
        if self.seconds:
            time.sleep(self.seconds)


Loop = Callable[[int, Performed], None]
"""Does tasks until there are none: of the worker with this number, by calling what remembers them."""


def processes(loop: Loop, workers: int, seconds: float) -> list[Performed]:
    """Run the loop in so many processes.

    Raises:
        Invalid: a worker failed; its error is the message.
    """
    context = multiprocessing.get_context("fork")
    line = context.Barrier(workers)

    def child(index: int, reply: Connection) -> None:
        end_with_parent(signal.SIGKILL)
        performed = Performed(seconds)
        try:
            line.wait(PATIENCE)
            loop(index, performed)
            reply.send(performed)
        except BaseException as error:
            reply.send(f"worker {index}: {error!r}")

    started = []
    try:
        for index in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=child, args=(index, theirs), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        return [_answer(ours) for _, ours in started]
    finally:
        for process, _ in started:
            process.join(1)
            process.kill()
            process.join()


def _answer(reply: Connection) -> Performed:
    if not reply.poll(PATIENCE):
        raise Invalid(f"a worker did not end within {PATIENCE:g} s")
    try:
        answer = reply.recv()
    except EOFError:
        raise Invalid("a worker died") from None
    if isinstance(answer, Performed):
        return answer
    raise Invalid(answer)


def threads(loop: Loop, workers: int, seconds: float, prepare: Callable[[], None]) -> list[Performed]:
    """Run the loop in so many threads of one process of their own, in which something is prepared first."""

    def together(_: int, performed: Performed) -> None:
        prepare()
        each = [Performed(seconds) for _ in range(workers)]
        line = threading.Barrier(workers)
        errors: list[str] = []

        def member(index: int) -> None:
            line.wait(PATIENCE)
            try:
                loop(index, each[index])
            except Exception as error:
                errors.append(f"worker {index}: {error!r}")

        crew = [threading.Thread(target=member, args=(index,)) for index in range(workers)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        if errors:
            raise Invalid(errors[0])
        for one in each:
            performed.numbers.extend((len(one.numbers), *one.numbers))
            performed.times.extend((0, *one.times))

    (joined,) = processes(together, 1, 0.0)
    return _parted(joined)


def _parted(joined: Performed) -> list[Performed]:
    """Return what each thread did: one after another they stand there, each after its length."""
    parted = []
    start = 0
    while start < len(joined.numbers):
        end = start + 1 + joined.numbers[start]
        parted.append(Performed(0.0, joined.numbers[start + 1 : end], joined.times[start + 1 : end]))
        start = end
    return parted


def once_each(performed: Sequence[Performed], tasks: int) -> None:
    """Check that each task was executed once.

    Raises:
        Invalid: one was not, or was again.
    """
    counted = Counter(number for one in performed for number in one.numbers)
    again = sum(times - 1 for times in counted.values())
    if again or len(counted) != tasks:
        raise Invalid(f"{tasks - len(counted)} of {tasks} tasks were not executed, {again} were again")
