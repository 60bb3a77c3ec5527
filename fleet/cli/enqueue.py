"""`fleet enqueue`: one task, many alike, or a file of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli import lines
from fleet.cli.common import DatabaseOption, JsonOption, duration, moment, note, opened, print_json, warn
from fleet.cli.lines import Chunk
from fleet.domain.jsontext import decode_object
from fleet.enqueuing import checked, new_task
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.monitoring.sight import Sight
    from fleet.storage.interfaces import Storage

MAX_COUNT = 10_000_000


def add_commands(app: typer.Typer) -> None:
    """Add this command to `fleet`."""
    app.command()(enqueue)


def enqueue(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="The handler's name.", show_default=False)] = None,
    payload: Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object: the keyword arguments.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="The queue.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher first; default 0.")] = None,
    delay: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="Wait so long: 30, 30s, 5m, 2h.")
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Wait until then: 2030-01-31T08:00:00+01:00."),
    ] = None,
    requires: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What the worker must offer: gpu,mem=16.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="Attempts, at most; default 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="Time for one attempt; default none.")
    ] = None,
    dedupe_key: Annotated[
        str | None, typer.Option(metavar="K", help="At most one open task of this handler with this key.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="K", help="At most one task of this handler with this key.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="Enqueue it so many times.")] = 1,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE|-",
            help='Lines like {"task": "NAME", "payload": {...}, "queue": "Q"}; the options given here hold for lines '
            "that do not give them.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a task that no worker ever offered.")] = False,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add tasks to the queue; a missing SQLite file is made."""
    options = checked(
        {
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "at": at,
            "requires": requires,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "dedupe_key": dedupe_key,
            "idempotency_key": idempotency_key,
        }
    )
    if delay is not None and at is not None:
        raise UsageError("give --delay or --at, not both")
    if source is not None:
        _refuse_single(payload, count, dedupe_key, idempotency_key)
        with lines.opened(source) as stream:
            total = lines.size_of(stream)
            found = _named(stream, source, options, task)
            sent = _send(found, db_path, strict, total, (lambda chunk: chunk.size) if total is not None else _tasks)
    else:
        wanted = _one(task, payload, options)
        sent = _send(lines.repeated(wanted, count), db_path, strict, count if count > 1 else 0, _tasks)
    _report(sent, as_json)


def _tasks(chunk: Chunk) -> int:
    return len(chunk.tasks)


def _refuse_single(payload: str | None, count: int, dedupe_key: str | None, idempotency_key: str | None) -> None:
    given = {"--payload": payload, "--dedupe-key": dedupe_key, "--idempotency-key": idempotency_key}
    names = [name for name, value in given.items() if value is not None] + (["--count"] if count != 1 else [])
    if names:
        raise UsageError(f"{names[0]} does not go with --from: write it into the lines")


def _named(stream: IO[bytes], source: str, options: Mapping[str, Any], task: str | None) -> Iterator[Chunk]:
    return lines.chunks(stream, "stdin" if source == "-" else source, options, task)


def _one(task: str | None, payload: str | None, options: Mapping[str, Any]) -> Any:
    if task is None:
        raise UsageError("name a task, or give --from FILE (see fleet enqueue --help)")
    return new_task(task, {} if payload is None else decode_object(payload, "--payload"), options)


@dataclass
class Sent:
    """What was enqueued.

    Attributes:
        ids: one id per input, in input order.
        existing: the ids that a key met.
        names: the handlers' names.
    """

    ids: list[int] = field(default_factory=list)
    existing: list[int] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def _send(
    chunks: Iterable[Chunk],
    db_path: str | None,
    strict: bool,
    total: int | None,
    amount: Callable[[Chunk], int],
) -> Sent:
    """Enqueue chunk after chunk, each in one transaction; what fails later leaves the earlier ones enqueued."""
    # The first chunk is read before the database is opened: bad input makes no file.
    chunks = iter(chunks)
    ready = list(itertools.islice(chunks, 1))
    sent = Sent()
    with opened(db_path, create=not strict) as storage, _telling_what_was_sent(sent):
        offers = _Offers(storage)
        with lines.progress(total, "tasks") as advance:
            for chunk in itertools.chain(ready, chunks):
                names = {task.task for task in chunk.tasks}
                if strict:
                    offers.refuse_unknown(names)
                enqueued = storage.queue.enqueue(chunk.tasks)
                sent.ids += enqueued.ids
                sent.existing += enqueued.existing
                sent.names |= names
                advance(amount(chunk))
        offers.warn(sent.names)
    return sent


@contextmanager
def _telling_what_was_sent(sent: Sent) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if sent.ids:
            note(f"{len(sent.ids)} tasks were enqueued before this (ids {sent.ids[0]} to {sent.ids[-1]})")
        raise


class _Offers:
    """Who would run a task: what live workers offer, and what any worker ever registered."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sight: Sight | None = None

    @property
    def sight(self) -> Sight:
        if self._sight is None:
            from fleet.monitoring.observe import observe_workers
            from fleet.process import is_dead

            self._sight = observe_workers(self._storage, is_dead)
        return self._sight

    def unknown(self, names: set[str]) -> list[str]:
        from fleet.worker.handlers.builtin import BUILTINS

        rest = names - {handler.name for handler in BUILTINS}
        if rest:
            rest -= {handler.name for handler in self._storage.queue.handlers()} | self.sight.offered()
        return sorted(rest)

    def refuse_unknown(self, names: set[str]) -> None:
        unknown = self.unknown(names)
        if unknown:
            raise UsageError(
                f"task {unknown[0]!r}: no worker offers it, and none ever did: "
                "start a worker that has it, check the spelling (fleet handlers), or leave out --strict"
            )

    def warn(self, names: set[str]) -> None:
        from fleet.monitoring.findings import why_nothing_runs

        unknown = self.unknown(names)
        for name in unknown:
            warn(f"task {name!r}: no worker offers it, and none ever did: it stays pending until one does")
        reason = why_nothing_runs(self.sight)
        if reason is not None:
            warn(f"nothing will run this: {reason}: run fleet-scaler --target-workers N, or fleet-worker")
        elif self.sight.claiming():
            for name in sorted(names - self.sight.offered() - set(unknown)):
                warn(f"task {name!r}: no live worker offers it now")


def _report(sent: Sent, as_json: bool) -> None:
    if as_json:
        print_json({"ids": sent.ids, "existing": sent.existing})
    elif not sent.ids:
        print("nothing to enqueue")
    elif len(sent.ids) == 1:
        print(f"task {sent.ids[0]}" + (" (it was there already: its key is taken)" if sent.existing else ""))
    else:
        there = f", {len(sent.existing)} of them there already" if sent.existing else ""
        print(f"{len(sent.ids)} tasks{there}: ids {min(sent.ids)} to {max(sent.ids)}")
