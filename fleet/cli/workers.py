"""`fleet worker show`: one worker. What is ordered of it is in `worker_orders`."""

from __future__ import annotations

from typing import Any

import typer

from fleet.cli import worker_orders
from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table, stored_text
from fleet.cli.quarantine import quarantine_row
from fleet.cli.registry import use_of, worker_rows
from fleet.cli.worker_orders import WorkerId, known, order_row
from fleet.domain.health import verdicts_of

ORDERS_SHOWN = 5

worker_app = new_app("One worker.")


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    worker_orders.add_commands(worker_app)
    app.add_typer(worker_app, name="worker")


@worker_app.command("show")
def show(worker_id: WorkerId, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show a worker: what it does, how it is and why, and what was ordered of it lately."""
    with opened(db_path, read_only=True) as storage:
        worker = known(storage, worker_id)
        document = {
            **next(row for row in worker_rows(storage) if row["worker_id"] == worker_id),
            "commands": [order_row(order) for order in storage.orders.list(worker_id, ORDERS_SHOWN)],
            "quarantines": [quarantine_row(one) for one in storage.health.quarantines() if one.covers(worker)],
        }
    if as_json:
        print_json(document)
    else:
        _print_worker(document)


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
        task = order["arguments"].get("task_id")
        about = "" if task is None else f" of task {task}"
        print(f"command {order['command_id']}: {order['kind']}{about} {order['status']}{answer}")
