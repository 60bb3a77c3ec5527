"""The command `fleet`. Of its commands only the module of the one that is called is loaded; for help, all of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from fleet.cli.common import new_app, run_command

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "database": ("init", "db"),
    "enqueue": ("enqueue",),
    "queue": ("tasks", "task"),
    "batches": ("batch",),
    "pauses": ("pause", "resume", "queues"),
    "limits": ("limit",),
    "schedules": ("schedule",),
    "handlers": ("handlers",),
    "registry": ("workers", "groups", "status"),
    "control": ("adapters", "adapter", "group", "commands"),
    "decisions": ("decisions",),
    "explain": ("explain",),
    "workers": ("worker",),
    "quarantine": ("quarantine",),
    "upkeep": ("prune", "config"),
}
"""Modules of this package, in the order of the help, and the commands that each adds."""

_MODULE_OF = {command: module for module, commands in COMMANDS.items() for command in commands}


def _print_version(wanted: bool) -> None:
    if wanted:
        from fleet import __version__

        print(f"fleet {__version__}")
        raise typer.Exit


def fleet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A worker fleet with nothing but a database between its parts."""


def app_for(word: str | None = None) -> typer.Typer:
    """Return the app.

    Args:
        word: the first word of the command line; where that is a command, the app has this one and its neighbours
            alone.
    """
    app = new_app("A worker fleet with nothing but a database between its parts.")
    app.callback(epilog="Workers are started by fleet-worker, and scaled by fleet-scaler: each has its own --help.")(
        fleet
    )
    for module in [_MODULE_OF[word]] if word in _MODULE_OF else COMMANDS:
        import_module(f"fleet.cli.{module}").add_commands(app)
    return app


def run() -> NoReturn:
    """Run `fleet` with the process's arguments."""
    words = sys.argv[1:] or ["--help"]
    run_command(app_for(words[0]), "fleet", words)


if __name__ == "__main__":
    run()
