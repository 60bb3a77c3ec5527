"""The command `fleet`."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from fleet.cli import (
    batches,
    database,
    enqueue,
    handlers,
    limits,
    orders,
    pauses,
    quarantine,
    queue,
    registry,
    schedules,
    upkeep,
    workers,
)
from fleet.cli.common import new_app, run_command

app = new_app("A worker fleet with nothing but a database between its parts.")
for commands in (
    database,
    enqueue,
    queue,
    batches,
    pauses,
    limits,
    schedules,
    handlers,
    registry,
    workers,
    quarantine,
    upkeep,
):
    commands.add_commands(app)
orders.add_commands(queue.task_app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fleet import __version__

        print(f"fleet {__version__}")
        raise typer.Exit


@app.callback(epilog="Workers are started by fleet-worker, and scaled by fleet-scaler: each has its own --help.")
def fleet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A worker fleet with nothing but a database between its parts."""


def run() -> NoReturn:
    """Run `fleet` with the process's arguments."""
    run_command(app, "fleet", sys.argv[1:] or ["--help"])


if __name__ == "__main__":
    run()
