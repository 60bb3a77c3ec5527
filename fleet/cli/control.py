"""`fleet adapters`, `fleet adapter pause|resume`, `fleet group stop`, `fleet commands`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table
from fleet.cli.rows import offers
from fleet.domain.group import GroupStatus
from fleet.errors import ConflictError, NotFound

if TYPE_CHECKING:
    from fleet.domain.adapters import AdapterRecord
    from fleet.domain.group import CommandRecord
    from fleet.storage.interfaces import Storage

SHOWN = 20
OFFERED = ("base_capabilities", "on_request")
MOST = 10_000

adapter_app = new_app("One adapter.")
group_app = new_app("One worker group.")

AdapterId = Annotated[str, typer.Argument(metavar="ID", help="The adapter's id (fleet adapters).")]
GroupId = Annotated[str, typer.Argument(metavar="ID", help="The group's id (fleet groups).")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.command()(adapters)
    app.add_typer(adapter_app, name="adapter")
    app.add_typer(group_app, name="group")
    app.command()(commands)


def adapters(db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List adapters: whether one is there, what it can take, why nothing is ordered from it."""
    with opened(db_path, read_only=True) as storage:
        rows = _adapter_rows(storage)
    if as_json:
        print_json(rows)
    elif not rows:
        print("no adapters (a scaler starts workers of its own host without one)")
    else:
        columns = ["adapter_id", "kind", "state", "groups", "max_worker_groups", "workers_per_group", "priority"]
        heads = ["ADAPTER", "KIND", "STATE", "GROUPS", "OF", "WORKERS EACH", "PRIORITY", "OFFERS", "ON REQUEST"]
        heads += ["HOST", "BEAT", "WHY"]
        shown = [*columns, "base_capabilities", "on_request", "host", "last_heartbeat", "reason"]
        print_table(
            heads, [[offers(row[name]) if name in OFFERED else row[name] for name in shown] for row in rows], widest=120
        )


def _adapter_rows(storage: Storage) -> list[dict[str, Any]]:
    from fleet.monitoring.adapters import state_of
    from fleet.process import is_dead

    carried: dict[str | None, int] = {}
    for group in storage.control.groups(live_only=True):
        carried[group.adapter_id] = carried.get(group.adapter_id, 0) + 1
    now = storage.now()
    return [
        {
            **_adapter_row(each),
            "state": str(state_of(each, now, is_dead(each.process))),
            "groups": carried.get(each.adapter_id, 0),
        }
        for each in storage.adapters.list()
    ]


def _adapter_row(adapter: AdapterRecord) -> dict[str, Any]:
    """Return an adapter with the columns of `worker_adapter`."""
    process, limits = adapter.process, adapter.limits
    return {
        "adapter_id": adapter.adapter_id,
        "kind": adapter.kind,
        "host": process.host,
        "pid": process.pid,
        "epoch": adapter.epoch,
        "max_worker_groups": limits.max_worker_groups,
        "workers_per_group": limits.workers_per_group,
        "base_capabilities": dict(limits.base_capabilities or {}),
        "on_request": dict(limits.on_request or {}),
        "resizes": adapter.resizes,
        "priority": adapter.priority,
        "last_heartbeat": adapter.last_heartbeat,
        "lease_seconds": adapter.lease_seconds,
        "lease_expires_at": adapter.lease_expires_at,
        "status": adapter.status.value,
        "reason": adapter.reason,
        "backoff_until": adapter.backoff_until,
        "consecutive_failures": adapter.consecutive_failures,
    }


@adapter_app.command("pause")
def pause(
    adapter_id: AdapterId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for fleet adapters.")] = "by fleet adapter pause",
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Order no more workers from an adapter. What it has started goes on, and can be stopped."""
    with opened(db_path) as storage:
        _known(storage, adapter_id)
        changed = storage.adapters.pause(adapter_id, reason)
        _print_adapter(storage, adapter_id, as_json, "starts no more workers" if changed else "was paused already")


@adapter_app.command("resume")
def resume(adapter_id: AdapterId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Order workers from an adapter again at once; what has failed there is forgotten."""
    with opened(db_path) as storage:
        _known(storage, adapter_id)
        changed = storage.adapters.resume(adapter_id)
        _print_adapter(storage, adapter_id, as_json, "starts workers again" if changed else "was not paused")


def _known(storage: Storage, adapter_id: str) -> None:
    if storage.adapters.get(adapter_id) is None:
        raise NotFound(f"adapter {adapter_id}: there is none (fleet adapters shows what there is)")


def _print_adapter(storage: Storage, adapter_id: str, as_json: bool, what: str) -> None:
    if as_json:
        print_json(next(row for row in _adapter_rows(storage) if row["adapter_id"] == adapter_id))
    else:
        print(f"adapter {adapter_id} {what}")


@group_app.command("stop")
def stop(group_id: GroupId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Have all workers of a group finish what they execute and end. The pool's scaler may start others."""
    from fleet.cli.rows import group_row

    with opened(db_path) as storage:
        group = storage.control.group(group_id)
        if group is None:
            raise NotFound(f"group {group_id}: there is none (fleet groups --all shows what there is)")
        stopped = storage.control.stop_group(group_id, reason="stopped by fleet group stop")
        group = storage.control.group(group_id) or group
    if not stopped and group.status is not GroupStatus.STOPPING:
        raise ConflictError(f"group {group_id} is {group.status}: there is nothing to stop")
    if as_json:
        print_json(group_row(group))
    else:
        print(f"group {group_id} is stopping: its workers finish what they execute")


def commands(
    everything: Annotated[bool, typer.Option("--all", help="Show all, not only the newest.")] = False,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List commands to adapters, newest first, and what became of them."""
    with opened(db_path, read_only=True) as storage:
        rows = [_command_row(one) for one in storage.control.commands(MOST if everything else SHOWN)]
    if as_json:
        print_json(rows)
    elif not rows:
        print("no commands")
    else:
        columns = ["command_id", "kind", "adapter_id", "pool", "status", "created_at", "error_code", "error_message"]
        heads = ["ID", "KIND", "ADAPTER", "POOL", "STATUS", "CREATED", "CODE", "ERROR"]
        print_table(heads, [[row[name] for name in columns] for row in rows], widest=120)


def _command_row(command: CommandRecord) -> dict[str, Any]:
    """Return a command with the columns of `adapter_command`."""
    return {
        "command_id": command.command_id,
        "adapter_id": command.adapter_id,
        "pool": command.pool,
        "kind": command.kind.value,
        "arguments": dict(command.arguments),
        "status": command.status.value,
        "scheduler_epoch": command.scheduler_epoch,
        "created_at": command.created_at,
        "expires_at": command.expires_at,
        "taken_at": command.taken_at,
        "finished_at": command.finished_at,
        "reply": command.reply,
        "error_code": command.error_code,
        "error_message": command.error_message,
    }
