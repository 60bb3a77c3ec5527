"""`fleet tasks`, `fleet task show`, `fleet task wait`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    LARGEST_ID,
    DatabaseOption,
    JsonOption,
    duration,
    fail,
    new_app,
    note,
    opened,
    print_json,
    print_table,
    stored_text,
)
from fleet.cli.rows import attempt_row, parent_row, task_document, task_row
from fleet.clock import SystemClock
from fleet.domain.durations import format_seconds
from fleet.domain.task import BlockedReason, TaskFilter, TaskStatus
from fleet.errors import WaitTimeout

if TYPE_CHECKING:
    from fleet.domain.task import TaskRecord
    from fleet.storage.interfaces import Storage

task_app = new_app("One task.")

TaskId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="The task's id.")]
TaskIds = Annotated[list[int], typer.Argument(metavar="ID...", min=1, max=LARGEST_ID, help="The tasks' ids.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    # Imported here: these are commands of the same group, in a file of their own.
    from fleet.cli import orders

    app.command()(tasks)
    orders.add_commands(task_app)
    app.add_typer(task_app, name="task")


def tasks(
    status: Annotated[
        list[TaskStatus] | None, typer.Option(metavar="S", help=f"Of: {', '.join(TaskStatus)}. Repeatable.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="In this queue.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Of this handler.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="At most so many.")] = 100,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks, newest first."""
    with opened(db_path, read_only=True) as storage:
        # One more than is shown tells whether there are more.
        found = storage.queue.list(TaskFilter(tuple(status or ()), queue, task, limit + 1))
        rows = [task_row(record, storage.now()) for record in found[:limit]]
    if as_json:
        print_json(rows)
    else:
        _print_tasks(rows)
    if len(found) > limit:
        note(f"the newest {limit} are shown; --limit N shows more")


def _print_tasks(rows: list[dict[str, Any]]) -> None:
    if not rows:
        print("no tasks")
        return
    print_table(
        ["ID", "TASK", "QUEUE", "STATUS", "ATTEMPT", "AGE", "WORKER", "NOTE"],
        [
            [
                row["id"],
                row["task"],
                row["queue"],
                row["status"],
                f"{row['attempt']}/{row['max_attempts']}",
                format_seconds(max(0.0, row["age_seconds"])),
                row["worker"],
                _remark(row),
            ]
            for row in rows
        ],
    )


_WAITS = {
    BlockedReason.PARENTS: "what it depends on",
    BlockedReason.LIMIT: "the limit of its key",
    BlockedReason.BATCH: "its batch to end",
    BlockedReason.RATE: "the rate of its key",
}


def _remark(row: dict[str, Any]) -> str | None:
    if row["error"]:
        return str(row["error"])
    if row["blocked_reason"]:
        return f"waits for {_WAITS.get(row['blocked_reason'], row['blocked_reason'])}"
    if row["status"] != TaskStatus.RUNNING or row["progress"] is None:
        return None
    return f"{row['progress']:.0%} {row['progress_text'] or ''}".strip()


@task_app.command()
def show(task_id: TaskId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show all of one task: what it depends on, its stored steps, and its attempts that did not succeed, too."""
    with opened(db_path, read_only=True) as storage:
        document = _whole(storage, task_id)
    if as_json:
        print_json(document)
        return
    parents, attempts = document.pop("parents"), document.pop("attempts")
    width = max(map(len, document))
    for name, value in document.items():
        if value not in (None, {}, [], False) or name == "payload":
            print(f"{name:<{width}}  {_shown(value)}")
    if parents:
        print()
        columns = ["id", "task", "status", "error"]
        print_table(["DEPENDS ON", "TASK", "STATUS", "ERROR"], [[row[name] for name in columns] for row in parents])
    if attempts:
        print()
        columns = ["attempt", "outcome", "worker", "started_at", "ended_at", "error_kind", "error"]
        print_table([_heading(name) for name in columns], [[row[name] for name in columns] for row in attempts])


def _whole(storage: Storage, task_id: int) -> dict[str, Any]:
    from fleet.handle import found

    return {
        **task_document(found(storage, task_id), storage.now()),
        "parents": [parent_row(parent) for parent in storage.queue.parents(task_id)],
        "steps": sorted(storage.queue.steps(task_id)),
        "attempts": [attempt_row(attempt) for attempt in storage.queue.attempts(task_id)],
    }


def _heading(column: str) -> str:
    return column.removesuffix("_at").replace("_", " ").upper()


def _shown(value: Any) -> str:
    if isinstance(value, dict | list | bool):
        value = json.dumps(value, ensure_ascii=False)
    text = stored_text(value).rstrip("\n")
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


@task_app.command()
def wait(
    task_ids: TaskIds,
    timeout: Annotated[
        float | None, typer.Option(parser=duration, metavar="D", help="Give up after so long; default never.")
    ] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Wait until tasks have ended. Exits 0 when all are done, 1 when one failed, 4 when one has not ended in time."""
    with opened(db_path, read_only=True) as storage:
        ended, late = _wait_for_all(storage, task_ids, timeout, None if as_json else _tell)
        if as_json:
            from fleet.handle import found

            records = [*ended, *(found(storage, task_id) for task_id in task_ids[len(ended) :])]
            print_json([task_document(record, storage.now()) for record in records])
    if late is not None:
        return fail(str(late), late.exit_code)
    return 0 if all(record.status is TaskStatus.DONE for record in ended) else 1


def _wait_for_all(
    storage: Storage, task_ids: list[int], timeout: float | None, tell: Callable[[TaskRecord], None] | None
) -> tuple[list[TaskRecord], WaitTimeout | None]:
    from fleet import handle

    for task_id in task_ids:
        handle.found(storage, task_id)
    clock = SystemClock()
    deadline = None if timeout is None else clock.boottime() + timeout
    ended: list[TaskRecord] = []
    for task_id in task_ids:
        left = None if deadline is None else max(0.0, deadline - clock.boottime())
        try:
            ended.append(handle.wait(storage, task_id, left, clock))
        except WaitTimeout:
            return ended, WaitTimeout(f"task {task_id} has not ended within {timeout:g} s; it may still end")
        if tell is not None:
            tell(ended[-1])
    return ended, None


def _tell(record: TaskRecord) -> None:
    print(f"task {record.task_id} {record.status}" + (f": {record.error}" if record.error else ""), flush=True)
