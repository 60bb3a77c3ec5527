"""`fleet batch show`, `fleet batch wait`, `fleet batch close`, `fleet batch list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    DatabaseOption,
    JsonOption,
    duration,
    fail,
    new_app,
    opened,
    print_json,
    print_table,
    stored_text,
)
from fleet.clock import SystemClock
from fleet.domain.task import TaskStatus
from fleet.errors import WaitTimeout

if TYPE_CHECKING:
    from fleet.domain.batch import BatchRecord

batch_app = new_app("Batches: tasks that are counted together (fleet enqueue --batch).")

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(batch_app, name="batch")


@batch_app.command()
def show(batch_id: BatchId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show one batch: how many of its tasks are in each status, and the task that follows."""
    from fleet.batches import found

    with opened(db_path, read_only=True) as storage:
        record = found(storage, batch_id)
    if as_json:
        print_json(_document(record))
        return
    print(f"batch {record.batch_id} {_state(record)}: {_counted(record)}")
    for name, time in (("created", record.created_at), ("closed", record.closed_at), ("ended", record.ended_at)):
        if time is not None:
            print(f"{name:<8} {stored_text(time)}")
    if record.callback_id is not None:
        print(f"then     task {record.callback_id}")


@batch_app.command()
def wait(
    batch_id: BatchId,
    timeout: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="Give up after so long; default never.")
    ] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Wait until a batch has ended. Exits 0 when all its tasks are done, 1 when one is not, 4 when it took too long."""
    from fleet import batches

    with opened(db_path, read_only=True) as storage:
        try:
            record = batches.wait(storage, batch_id, timeout, SystemClock())
        except WaitTimeout as late:
            if as_json:
                print_json(_document(batches.found(storage, batch_id)))
            return fail(str(late), late.exit_code)
    if as_json:
        print_json(_document(record))
    else:
        print(f"batch {batch_id} {_state(record)}: {_counted(record)}")
    return 0 if record.succeeded else 1


@batch_app.command()
def close(batch_id: BatchId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Say that nothing more is added to a batch: it ends with its last task."""
    with opened(db_path) as storage:
        closed = storage.rules.close_batch(batch_id)
    if as_json:
        print_json({"batch_id": batch_id, "closed": closed})
    else:
        print(f"batch {batch_id} is closed" if closed else f"batch {batch_id} was closed already")


@batch_app.command("list")
def list_batches(
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="At most so many.")] = 100,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, newest first."""
    with opened(db_path, read_only=True) as storage:
        records = storage.rules.batches(limit)
    if as_json:
        print_json([_document(record) for record in records])
    elif not records:
        print("no batches")
    else:
        print_table(
            ["BATCH", "STATE", "TASKS", "OPEN", "DONE", "FAILED", "CANCELLED", "CREATED", "THEN"],
            [
                [
                    record.batch_id,
                    _state(record),
                    record.size,
                    record.open,
                    *(record.counts.get(status, 0) for status in _ENDS),
                    record.created_at,
                    record.callback_id,
                ]
                for record in records
            ],
        )


_ENDS = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED)


def _document(record: BatchRecord) -> dict[str, Any]:
    from fleet.batches import counts_of

    return {
        "batch_id": record.batch_id,
        "created_at": record.created_at,
        "closed_at": record.closed_at,
        "ended_at": record.ended_at,
        "callback_id": record.callback_id,
        "size": record.size,
        "open": record.open,
        "counts": counts_of(record),
    }


def _state(record: BatchRecord) -> str:
    if record.ended_at is not None:
        return "has ended"
    return "is open" if record.closed_at is None else "is closed"


def _counted(record: BatchRecord) -> str:
    from fleet.batches import counts_of

    return ", ".join(f"{number} {status}" for status, number in counts_of(record).items()) or "no tasks"
