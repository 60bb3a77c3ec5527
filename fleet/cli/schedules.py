"""`fleet schedule add`, `list`, `show`, `remove`, `pause`, `resume`: periodic tasks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    DatabaseOption,
    JsonOption,
    duration,
    moment,
    new_app,
    note,
    opened,
    print_json,
    print_table,
)
from fleet.cli.offers import Offers
from fleet.cli.schedule_rows import document, facts, in_words, next_ticks, table_rows, tick_document, tick_lines
from fleet.domain.jsontext import decode_object, encode
from fleet.domain.schedule import Missed, Overlap, Schedule
from fleet.domain.task import SHELL_TASK
from fleet.errors import NotFound, UsageError

if TYPE_CHECKING:
    from fleet.domain.schedule import ScheduleRecord
    from fleet.storage.interfaces import Storage

schedule_app = new_app("Schedules: tasks that are enqueued again and again.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(schedule_app, name="schedule")


@schedule_app.command()
def add(
    name: Name,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="The handler's name.", show_default=False)] = None,
    shell: Annotated[
        str | None,
        typer.Option(metavar="'CMD'", help="A shell command in place of TASK, for workers with --allow-shell."),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(metavar="'M H D M W'", help="Minute, hour, day of month, month, day of week: '*/5 * * * *'."),
    ] = None,
    every: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="An interval instead: 30s, 5m, 2h.")
    ] = None,
    tz: Annotated[
        str, typer.Option(metavar="ZONE", help="The time zone in which --cron is read, such as Europe/Prague.")
    ] = "UTC",
    start: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="No tick before this; an interval counts from it."),
    ] = None,
    missed: Annotated[
        Missed,
        typer.Option(
            metavar="|".join(Missed),
            help="Of ticks that nobody was there to make: the latest is made, all are, or none that is over 60 s late.",
        ),
    ] = Missed.LATEST,
    overlap: Annotated[
        Overlap | None,
        typer.Option(
            metavar="|".join(Overlap),
            help="A tick while the last one's task is open: left out, or made. Default skip; with --missed all, allow.",
        ),
    ] = None,
    payload: Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object: the keyword arguments.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="The queue.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher first; default 0.")] = None,
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
    concurrency_key: Annotated[
        str | None, typer.Option(metavar="K", help="The key by which limits count it (see fleet limit).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the schedule of this name, if there is one.")] = (
        False
    ),
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue TASK again and again; a missing SQLite file is made.

    Fixed times come once a day, also when the clock is changed: where it jumps over one, that comes right after; where
    one occurs twice, the first counts. With * or */N as minute or hour, each time at which the clock matches counts.
    """
    task, arguments = _what(task, payload, shell)
    schedule = Schedule(
        name=name,
        task=task,
        payload_json=encode(arguments, "--payload"),
        options=_options(
            queue=queue,
            priority=priority,
            requires=requires,
            prefers=prefers,
            max_attempts=max_attempts,
            timeout=timeout,
            retry=retry,
            dedupe_key=dedupe_key,
            dedupe_scope=dedupe_scope,
            concurrency_key=concurrency_key,
        ),
        cron=cron,
        every_seconds=every,
        tz=tz,
        missed=missed,
        overlap=overlap or (Overlap.ALLOW if missed is Missed.ALL else Overlap.SKIP),
        starts_at=start,
    )
    _check(schedule)
    with opened(db_path, create=True) as storage:
        record = storage.schedules.add(schedule, replace=replace)
        Offers(storage).warn({task})
    _report(record, as_json)


def _what(task: str | None, payload: str | None, shell: str | None) -> tuple[str, dict[str, Any]]:
    """Return handler and payload."""
    from fleet.enqueuing import shell_payload

    if shell is None:
        if task is None:
            raise UsageError("name a task, or give --shell 'CMD' (see fleet schedule add --help)")
        return task, {} if payload is None else decode_object(payload, "--payload")
    if task is not None or payload is not None:
        raise UsageError("--shell stands in place of TASK and --payload: give it or them")
    return SHELL_TASK, shell_payload(shell)


def _options(**given: Any) -> dict[str, Any]:
    from fleet.domain.schedule_options import options_json
    from fleet.task_options import checked

    return options_json(checked(given))


def _check(schedule: Schedule) -> None:
    """Refuse a schedule that makes no sense before the database is opened: bad input makes no file."""
    from fleet.domain.schedule_options import task_of

    if (schedule.cron is None) == (schedule.every_seconds is None):
        raise UsageError("give --cron '*/5 * * * *' or --every 5m, one of the two")
    if schedule.cron is None and schedule.tz != "UTC":
        raise UsageError("--tz is about --cron: an interval is the same in every zone")
    task_of(schedule)


def _report(record: ScheduleRecord, as_json: bool) -> None:
    if as_json:
        print_json({**document(record), "next_ticks": next_ticks(record)})
        return
    print(f"schedule {record.schedule.name}: {in_words(record.schedule)}: {record.schedule.task}")
    for line in tick_lines(record):
        print(line)
    if record.paused:
        note(f"it is paused: fleet schedule resume {record.schedule.name}")


@schedule_app.command("list")
def list_schedules(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List schedules, their next and their last ticks."""
    with opened(db_path, read_only=True) as storage:
        records = storage.schedules.list()
    if as_json:
        print_json([document(record) for record in records])
    elif not records:
        print("no schedules")
    else:
        print_table(["SCHEDULE", "WHEN", "ZONE", "TASK", "NEXT TICK", "LAST TICK", "LAST TASK"], table_rows(records))


@schedule_app.command()
def show(
    name: Name,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="So many of the last ticks.")] = 20,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one schedule, its next and its last ticks."""
    with opened(db_path, read_only=True) as storage:
        record, ticks = _found(storage, name), storage.schedules.ticks(name, limit)
    if as_json:
        print_json(
            {**document(record), "next_ticks": next_ticks(record), "ticks": [tick_document(tick) for tick in ticks]}
        )
        return
    for label, value in facts(record):
        print(f"{label:<9} {value}")
    for line in tick_lines(record):
        print(line)
    if ticks:
        print_table(["TICK", "OUTCOME", "TASK"], [[tick.tick_at, tick.outcome, tick.task_id] for tick in ticks])


def _found(storage: Storage, name: str) -> ScheduleRecord:
    record = storage.schedules.get(name)
    if record is None:
        raise _none(name)
    return record


def _none(name: str) -> NotFound:
    return NotFound(f"schedule {name}: there is none (fleet schedule list shows what there is)")


@schedule_app.command()
def remove(name: Name, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Delete a schedule and its ticks; tasks that it has enqueued stay."""
    with opened(db_path) as storage:
        if not storage.schedules.remove(name):
            raise _none(name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        print(f"schedule {name} is removed")


@schedule_app.command()
def pause(name: Name, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Leave out a schedule's ticks until it is resumed."""
    with opened(db_path) as storage:
        record = _set_paused(storage, name, True)
    if as_json:
        print_json(document(record))
    else:
        print(f"schedule {name} is paused: its ticks are left out until fleet schedule resume {name}")


@schedule_app.command()
def resume(name: Name, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Make a schedule's ticks again, from now on."""
    with opened(db_path) as storage:
        record = _set_paused(storage, name, False)
    if as_json:
        print_json(document(record))
        return
    print(f"schedule {name} is resumed")
    for line in tick_lines(record):
        print(line)


def _set_paused(storage: Storage, name: str, paused: bool) -> ScheduleRecord:
    if not storage.schedules.pause(name, paused):
        raise _none(name)
    return _found(storage, name)
