"""`fleet quarantine list`, `fleet quarantine release`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table
from fleet.errors import NotFound

if TYPE_CHECKING:
    from fleet.domain.quarantine import Quarantine

quarantine_app = new_app("Workers and hosts that get no tasks, because tasks fail there that succeed elsewhere.")

BY_COMMAND = "command"


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(quarantine_app, name="quarantine")


def quarantine_row(quarantine: Quarantine) -> dict[str, Any]:
    """Return a quarantine with the columns of `quarantine`."""
    return {
        "id": quarantine.quarantine_id,
        "scope": quarantine.scope.value,
        "subject": quarantine.subject,
        "evidence": dict(quarantine.evidence),
        "reason": quarantine.reason,
        "created_at": quarantine.created_at,
        "until": quarantine.until,
        "released_at": quarantine.released_at,
        "released_by": quarantine.released_by,
    }


@quarantine_app.command("list")
def list_quarantines(
    everything: Annotated[bool, typer.Option("--all", help="Show what is over, too.")] = False,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List quarantines, newest first, with the tasks that are the evidence."""
    with opened(db_path, read_only=True) as storage:
        rows = [quarantine_row(one) for one in storage.health.quarantines(open_only=not everything)]
    if as_json:
        print_json(rows)
    elif not rows:
        print("no quarantines")
    else:
        print_table(
            ["ID", "SCOPE", "SUBJECT", "SINCE", "UNTIL", "RELEASED", "BY", "REASON", "TASKS"],
            [
                [
                    row["id"],
                    row["scope"],
                    row["subject"],
                    row["created_at"],
                    row["until"],
                    row["released_at"],
                    row["released_by"],
                    row["reason"],
                    _tasks(row["evidence"]),
                ]
                for row in rows
            ],
            widest=120,
        )


def _tasks(evidence: dict[str, Any]) -> str:
    """Return the evidence in a line: the ids of tasks, and the first one's error."""
    told = evidence.get("tasks")
    tasks = [task for task in told if isinstance(task, dict)] if isinstance(told, list) else []
    ids = " ".join(str(task.get("task_id")) for task in tasks)
    return f"{ids}: {tasks[0].get('error')}" if tasks else ""


@quarantine_app.command("release")
def release(
    what: Annotated[str, typer.Argument(metavar="ID|SUBJECT", help="A quarantine's id, a worker's, or a host's name.")],
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a worker or a host claim again at once. What failed there before is held against it no more."""
    with opened(db_path) as storage:
        released = storage.health.release(what, BY_COMMAND)
    if not released:
        raise NotFound(f"quarantine {what}: there is none open (fleet quarantine list shows what there is)")
    if as_json:
        print_json([quarantine_row(one) for one in released])
        return
    for one in released:
        print(f"{one.scope} {one.subject} claims again (quarantine {one.quarantine_id} is over)")
