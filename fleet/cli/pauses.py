"""`fleet pause`, `fleet resume`, `fleet queues`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    DatabaseOption,
    JsonOption,
    duration,
    moment,
    opened,
    print_json,
    print_table,
    stored_text,
    warn,
)
from fleet.domain.lanes import check_name
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.storage.interfaces import Storage

STATES = ("blocked", "scheduled", "pending", "running")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    for command in (pause, resume, queues):
        app.command()(command)


def pause(
    queue: QueueName,
    until: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="TIME", help="Until then: 2030-01-31T08:00:00+01:00."),
    ] = None,
    length: Annotated[
        float | None, typer.Option("--for", parser=duration, metavar="D", help="For so long; default until resumed.")
    ] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let nothing be claimed from a queue; what runs goes on."""
    check_name("queue", queue)
    if until is not None and length is not None:
        raise UsageError("give --until or --for, not both")
    with opened(db_path) as storage:
        end = until if length is None else storage.now() + timedelta(seconds=length)
        if end is not None and end <= storage.now():
            raise UsageError(f"queue {queue}: a pause until {stored_text(end)} is over already: give a later time")
        storage.rules.pause(queue, end)
        if not any(lane.queue == queue for lane in storage.queue.lanes()):
            warn(f"queue {queue!r}: no task has been in it (fleet queues lists those that have some)")
    if as_json:
        print_json({"queue": queue, "paused": True, "paused_until": end})
    else:
        print(f"queue {queue} is paused until {'it is resumed' if end is None else stored_text(end)}")


def resume(queue: QueueName, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Let a queue be claimed from again."""
    check_name("queue", queue)
    with opened(db_path) as storage:
        resumed = storage.rules.resume(queue)
    if as_json:
        print_json({"queue": queue, "paused": False, "resumed": resumed})
    else:
        print(f"queue {queue} is resumed" if resumed else f"queue {queue} was not paused")


def queues(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List the queues that have open tasks or are paused."""
    with opened(db_path, read_only=True) as storage:
        rows = _rows(storage)
    if as_json:
        print_json(rows)
    elif not rows:
        print("no queue has open tasks, and none is paused")
    else:
        print_table(
            ["QUEUE", *(state.upper() for state in STATES), "OLDEST PENDING", "PAUSED"],
            [
                [row["queue"], *(row[state] for state in STATES), row["oldest_pending_at"], _pause_of(row)]
                for row in rows
            ],
        )


def _rows(storage: Storage) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for counts in storage.queue.counts():
        row = found.setdefault(counts.queue, _empty(counts.queue))
        for state in STATES:
            row[state] += getattr(counts, state)
        times = [time for time in (row["oldest_pending_at"], counts.oldest_pending_at) if time is not None]
        row["oldest_pending_at"] = min(times, default=None)
    for pause in storage.rules.pauses():
        row = found.setdefault(pause.queue, _empty(pause.queue))
        row["paused"], row["paused_until"] = True, pause.until
    return sorted(found.values(), key=lambda row: str(row["queue"]))


def _empty(queue: str) -> dict[str, Any]:
    counts: dict[str, Any] = dict.fromkeys(STATES, 0)
    return {"queue": queue, **counts, "oldest_pending_at": None, "paused": False, "paused_until": None}


def _pause_of(row: dict[str, Any]) -> str | None:
    if not row["paused"]:
        return None
    return "until resumed" if row["paused_until"] is None else f"until {stored_text(row['paused_until'])}"
