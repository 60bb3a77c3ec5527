"""Tasks as lines of JSON: `{"task": "thumbnail", "payload": {"path": "cat.png"}, "queue": ..., "priority": ...}`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from fleet.domain.alike import TasksAlike, runs
from fleet.domain.jsontext import decode_object
from fleet.domain.task import NewTask
from fleet.enqueuing import Refs, described
from fleet.errors import FleetError, UsageError

CHUNK_TASKS = 1_000
CHUNK_BYTES = 8 * 1024 * 1024
LINE_BYTES = 4 * 1024 * 1024


@dataclass
class Chunk:
    """Tasks that are enqueued in one transaction.

    Attributes:
        first: the number of its first line.
        last: the number of its last line.
        tasks: the tasks.
        size: the bytes of input that they took.
    """

    first: int
    last: int = 0
    tasks: Sequence[NewTask] = ()
    size: int = 0

    @property
    def names(self) -> set[str]:
        """The handlers' names."""
        return {run.template.task for run in runs(self.tasks)}

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.tasks) >= CHUNK_TASKS or self.size >= CHUNK_BYTES


@contextmanager
def opened(source: str) -> Iterator[IO[bytes]]:
    """Open a file of lines, or stdin for `-`.

    Raises:
        UsageError: the file cannot be read.
    """
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = open(source, "rb")  # noqa: SIM115  # closed below; failing to open has its own message
    except OSError as error:
        raise UsageError(f"--from {source}: {error.strerror or error}") from None
    with stream:
        yield stream


def size_of(stream: IO[bytes]) -> int | None:
    """Return the bytes of a regular file, None for a pipe or a terminal."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def chunks(stream: IO[bytes], name: str, defaults: Mapping[str, Any], task: str | None, refs: Refs) -> Iterator[Chunk]:
    """Return the tasks of the lines, in chunks; a chunk comes only when all its lines are good.

    Args:
        stream: the lines.
        name: the file's name, for messages.
        defaults: options of lines that do not give them.
        task: the handler of lines that name none.
        refs: the names of earlier lines' tasks; who enqueues a chunk tells it the ids.

    Raises:
        UsageError: a line is not a task; the message names it.
    """
    tasks: list[NewTask] = []
    chunk = Chunk(first=1, tasks=tasks)
    for number, line in enumerate(_lines(stream, name), start=1):
        chunk.size += len(line)
        chunk.last = number
        if line.strip():
            tasks.append(_task(line, f"{name} line {number}", defaults, task, refs))
        if chunk.is_full:
            yield chunk
            tasks = []
            chunk = Chunk(first=number + 1, tasks=tasks)
    if tasks:
        yield chunk


def _lines(stream: IO[bytes], name: str) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise UsageError(f"{name} line {number}: longer than {LINE_BYTES} bytes")
        yield line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _task(line: bytes, place: str, defaults: Mapping[str, Any], task: str | None, refs: Refs) -> NewTask:
    try:
        return refs.admit(described(decode_object(line.decode(), "it"), defaults, task))
    except UnicodeDecodeError:
        raise UsageError(f"{place}: not UTF-8") from None
    except FleetError as error:
        raise UsageError(f"{place}: {str(error).removeprefix('it: ')}") from None


def repeated(task: NewTask, count: int) -> Iterator[Chunk]:
    """Return `count` copies of a task, in chunks."""
    for first in range(0, count, CHUNK_TASKS):
        size = min(CHUNK_TASKS, count - first)
        yield Chunk(first + 1, first + size, TasksAlike(task, [task.payload_json] * size))


@contextmanager
def progress(total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr where that is a terminal; yield what is called with every further amount.

    Args:
        total: the whole amount; None when unknown, 0 when there is nothing to show.
        unit: what is counted, where the whole is unknown.
    """
    if total == 0 or not sys.stderr.isatty():
        yield lambda amount: None
    elif total is None:
        yield from _counter(unit)
    else:
        import typer

        with typer.progressbar(length=total, label="enqueuing", file=sys.stderr) as bar:
            yield bar.update


def _counter(unit: str) -> Iterable[Callable[[int], None]]:
    count = 0

    def advance(amount: int) -> None:
        nonlocal count
        count += amount
        print(f"\renqueuing: {count} {unit}", end="", file=sys.stderr, flush=True)

    yield advance
    print(file=sys.stderr)
