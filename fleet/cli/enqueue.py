"""`fleet enqueue`: one task, many alike, or a file of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from fleet.cli import lines
from fleet.cli.common import (
    LARGEST_ID,
    DatabaseOption,
    JsonOption,
    duration,
    moment,
    print_json,
)
from fleet.cli.lines import Chunk
from fleet.cli.sending import Filling, Sending, Sent
from fleet.domain.jsontext import decode_object, encode
from fleet.domain.task import SHELL_TASK, NewTask, ParentPolicy
from fleet.enqueuing import Refs, checked, new_task, shell_payload
from fleet.errors import UsageError
from fleet.task_options import batch_name

MAX_COUNT = 10_000_000


def add_commands(app: typer.Typer) -> None:
    """Add this command to `fleet`."""
    app.command()(enqueue)


def enqueue(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="The handler's name.", show_default=False)] = None,
    shell: Annotated[
        str | None,
        typer.Option(metavar="'CMD'", help="A shell command in place of TASK, for workers with --allow-shell."),
    ] = None,
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
    deadline: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Fail it unexecuted when it has not begun by then."),
    ] = None,
    requires: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What the worker must offer: gpu,mem=16.")
    ] = None,
    prefers: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What the worker should offer; any takes it after a moment.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="Attempts, at most; default 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="Time for one attempt; default none.")
    ] = None,
    retry: Annotated[
        str | None,
        typer.Option(metavar="WAITS", help="When to try again: fixed:30, exponential:1:600, or 1,10,60."),
    ] = None,
    dedupe_key: Annotated[
        str | None, typer.Option(metavar="K", help="At most one open task of this handler with this key.")
    ] = None,
    dedupe_scope: Annotated[
        str | None,
        typer.Option(metavar="open|waiting", help="Whether a running task counts as open (default), or lets one wait."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="K", help="At most one task of this handler with this key.")
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(metavar="K", help="The key by which limits count it (see fleet limit).")
    ] = None,
    depends_on: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", min=1, max=LARGEST_ID, help="Wait for this task to end. Repeatable."),
    ] = None,
    on_parent_failure: Annotated[
        ParentPolicy | None,
        typer.Option(metavar="|".join(ParentPolicy), help="What if one of those fails; default cancel."),
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="ID", help="The batch; a missing one is made, and closed at the end.")
    ] = None,
    then: Annotated[
        str | None, typer.Option(metavar="TASK", help="With a new --batch: the task that follows when all have ended.")
    ] = None,
    then_payload: Annotated[str | None, typer.Option(metavar="JSON", help="The payload of --then.")] = None,
    keep_open: Annotated[
        bool, typer.Option("--keep-open", help="Leave the new --batch open (see fleet batch close).")
    ] = False,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="Enqueue it so many times.")] = 1,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE|-",
            help='Lines like {"task": "NAME", "payload": {...}, "queue": "Q"}; the options given here hold for lines '
            'that do not give them. A line may have a "ref", which later lines name in "depends_on".',
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
            "deadline": deadline,
            "requires": requires,
            "prefers": prefers,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "retry": retry,
            "dedupe_key": dedupe_key,
            "dedupe_scope": dedupe_scope,
            "idempotency_key": idempotency_key,
            "concurrency_key": concurrency_key,
            "depends_on": depends_on or None,
            "on_parent_failure": on_parent_failure,
            "batch_id": batch,
        }
    )
    if delay is not None and at is not None:
        raise UsageError("give --delay or --at, not both")
    filling = _filling(batch, then, then_payload, keep_open)
    report = partial(_report, as_json=as_json)
    if shell is not None:
        task, payload = _shell(shell, task, payload, source)
    if source is not None:
        _refuse_single(payload, count, dedupe_key, idempotency_key)
        _send_lines(source, options, task, strict, filling, db_path, report)
    else:
        wanted = _one(task, payload, options)
        shown = count if count > 1 else 0
        sending = Sending(strict, shown, _tasks, lambda sent: _rest(sent, count), report, filling=filling)
        sending.send(lines.repeated(wanted, count), db_path)


def _send_lines(
    source: str,
    options: Mapping[str, Any],
    task: str | None,
    strict: bool,
    filling: Filling | None,
    db_path: str | None,
    report: Callable[[Sent], None],
) -> None:
    refs = Refs()
    with lines.opened(source) as stream:
        total = lines.size_of(stream)
        name = "stdin" if source == "-" else source
        sending = Sending(
            strict,
            total,
            _tasks if total is None else _bytes,
            partial(_rest_of_lines, refs=refs),
            report,
            refs,
            filling,
        )
        sending.send(lines.chunks(stream, name, options, task, refs), db_path)


def _tasks(chunk: Chunk) -> int:
    return len(chunk.tasks)


def _bytes(chunk: Chunk) -> int:
    return chunk.size


def _rest_of_lines(sent: Sent, refs: Refs) -> str:
    begin = sent.last + 1
    also = ", with ids in place of the refs of earlier lines" if refs.has_names else ""
    return f"go on from line {begin}{also} (tail -n +{begin} FILE | fleet enqueue --from - ...)"


def _rest(sent: Sent, count: int) -> str:
    return f"go on with --count {count - len(sent.ids)}"


def _filling(batch: str | None, then: str | None, then_payload: str | None, keep_open: bool) -> Filling | None:
    if batch is None:
        named = {"--then": then, "--then-payload": then_payload, "--keep-open": keep_open or None}
        given = [name for name, value in named.items() if value is not None]
        if given:
            raise UsageError(f"{given[0]} is about a batch: name it with --batch")
        return None
    if then is None and then_payload is not None:
        raise UsageError("--then-payload: name the task that gets it with --then")
    callback = None if then is None else new_task(then, _object(then_payload, "--then-payload"), {})
    return Filling(batch_name("--batch", batch), callback, keep_open)


def _object(text: str | None, name: str) -> dict[str, Any]:
    return {} if text is None else decode_object(text, name)


def _refuse_single(payload: str | None, count: int, dedupe_key: str | None, idempotency_key: str | None) -> None:
    given = {"--payload": payload, "--dedupe-key": dedupe_key, "--idempotency-key": idempotency_key}
    names = [name for name, value in given.items() if value is not None] + (["--count"] if count != 1 else [])
    if names:
        raise UsageError(f"{names[0]} does not go with --from: write it into the lines")


def _shell(command: str, task: str | None, payload: str | None, source: str | None) -> tuple[str, str]:
    """Return handler and payload of a command."""
    given = {"TASK": task, "--payload": payload, "--from": source}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UsageError(f"--shell stands in place of TASK and --payload: it does not go with {names[0]}")
    return SHELL_TASK, encode(shell_payload(command), "--shell")


def _one(task: str | None, payload: str | None, options: Mapping[str, Any]) -> NewTask:
    if task is None:
        raise UsageError("name a task, or give --from FILE or --shell 'CMD' (see fleet enqueue --help)")
    return new_task(task, _object(payload, "--payload"), options)


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
