"""`fleet worker show`, `fleet worker restart`: one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table, stored_text
from fleet.cli.quarantine import quarantine_row
from fleet.cli.registry import use_of, worker_rows
from fleet.domain.health import verdicts_of
from fleet.domain.worker import LIVE_STATUSES, WorkerStatus
from fleet.errors import ConflictError, NotFound

if TYPE_CHECKING:
    from fleet.domain.orders import OrderRecord
    from fleet.domain.worker import WorkerRecord
    from fleet.storage.interfaces import Storage

ORDERS_SHOWN = 5

worker_app = new_app("One worker.")

WorkerId = Annotated[str, typer.Argument(metavar="ID", help="The worker's id (fleet workers).")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(worker_app, name="worker")


@worker_app.command("show")
def show(worker_id: WorkerId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show a worker: what it does, how it is and why, and what was ordered of it lately."""
    with opened(db_path, read_only=True) as storage:
        worker = _known(storage, worker_id)
        document = {
            **next(row for row in worker_rows(storage) if row["worker_id"] == worker_id),
            "commands": [order_row(order) for order in storage.orders.list(worker_id, ORDERS_SHOWN)],
            "quarantines": [quarantine_row(one) for one in storage.health.quarantines() if one.covers(worker)],
        }
    if as_json:
        print_json(document)
    else:
        _print_worker(document)


def _known(storage: Storage, worker_id: str) -> WorkerRecord:
    worker = storage.registry.get(worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id}: there is none (fleet workers --all shows what there is)")
    return worker


def order_row(order: OrderRecord) -> dict[str, Any]:
    """Return an order with the columns of `worker_command`."""
    return {
        "command_id": order.command_id,
        "worker_id": order.worker_id,
        "incarnation": order.incarnation,
        "kind": order.kind.value,
        "arguments": dict(order.arguments),
        "status": order.status.value,
        "taken_by": order.taken_by,
        "created_at": order.created_at,
        "expires_at": order.expires_at,
        "taken_at": order.taken_at,
        "finished_at": order.finished_at,
        "reply": order.reply,
        "error_code": order.error_code,
        "error_message": order.error_message,
    }


_APART = ("health", "health_checks", "metadata", "commands", "quarantines")


def _print_worker(document: dict[str, Any]) -> None:
    shown = {name: value for name, value in document.items() if name not in _APART and value not in (None, [], {})}
    shown |= {name: value for name, value in use_of(document).items() if value is not None}
    width = max(map(len, shown))
    for name, value in shown.items():
        print(f"{name.ljust(width)}  {stored_text(value)}")
    print(f"{'health'.ljust(width)}  {document['health'] or '-'}")
    checks = document["health_checks"]
    rows = [[name, verdict, checks[name].get("text")] for name, verdict in verdicts_of(checks).items()]
    if rows:
        print()
        print_table(["CHECK", "VERDICT", "WHY"], rows, widest=120)
    for one in document["quarantines"]:
        print(f"in quarantine until {stored_text(one['until'])}: {one['reason']}")
    for order in document["commands"]:
        answer = f": {order['error_message']}" if order["error_message"] else ""
        print(f"command {order['command_id']}: {order['kind']} {order['status']}{answer}")


@worker_app.command("restart")
def restart(worker_id: WorkerId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Order a worker to end after what it executes; its supervisor puts a new process in its place."""
    from fleet.domain.orders import OrderKind

    with opened(db_path) as storage:
        worker = _known(storage, worker_id)
        _check_restartable(worker)
        given = storage.orders.give(
            worker_id, worker.incarnation, OrderKind.RESTART, reason="ordered by fleet worker restart"
        )
        order = given or _open_restart(storage, worker)
    if as_json:
        print_json(order_row(order))
    elif given is None:
        print(f"worker {worker_id} is to restart already (command {order.command_id})")
    else:
        print(f"worker {worker_id} restarts after what it executes (command {order.command_id})")


def _check_restartable(worker: WorkerRecord) -> None:
    if worker.status not in LIVE_STATUSES:
        raise ConflictError(f"worker {worker.worker_id} is {worker.status}: there is nothing to restart")
    if worker.status is WorkerStatus.TERMINATING:
        raise ConflictError(f"worker {worker.worker_id} is draining: it ends after what it executes anyway")
    if worker.group_id is None:
        raise ConflictError(
            f"worker {worker.worker_id} belongs to no group, so nobody would start it again: restart it where it runs"
        )


def _open_restart(storage: Storage, worker: WorkerRecord) -> OrderRecord:
    """Return the restart that this life of a worker was ordered before."""
    for order in storage.orders.list(worker.worker_id):
        if order.incarnation == worker.incarnation and order.finished_at is None:
            return order
    raise ConflictError(f"worker {worker.worker_id} has just ended, or begun to drain (fleet workers)")
