"""`fleet handlers`, `fleet handlers sync`: what tasks get by default, and who offers to run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, opened, print_json, print_table
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.domain.task import HandlerDefaults
    from fleet.storage.interfaces import Storage

handlers_app = new_app("Handlers: their stored defaults, and how many live workers offer each.")


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.add_typer(handlers_app, name="handlers")


@handlers_app.callback(invoke_without_command=True)
def handlers(context: typer.Context, db_path: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List handlers: what their tasks get when the enqueuer says nothing, and how many live workers offer each."""
    if context.invoked_subcommand is not None:
        context.obj = db_path
        return
    with opened(db_path, read_only=True) as storage:
        rows = _rows(storage)
    if as_json:
        print_json(rows)
    else:
        _print_handlers(rows)


@handlers_app.command()
def sync(
    context: typer.Context,
    modules: Annotated[list[str], typer.Argument(metavar="MODULE...", help="Modules with tasks.")],
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store what the tasks of modules declare, as workers that load them do when they start."""
    from fleet.loading import load
    from fleet.worker.handlers.builtin import BUILTINS

    try:
        loaded = load(modules)
    except UsageError as error:
        raise UsageError(str(error).removeprefix("--tasks ")) from error
    names = loaded.keys() - {handler.name for handler in BUILTINS}
    declared = [loaded[name].defaults for name in sorted(names)]
    with opened(db_path or context.obj) as storage:
        storage.queue.declare_handlers(declared)
        rows = [row for row in _rows(storage) if row["name"] in names]
    if as_json:
        print_json(rows)
    else:
        _print_handlers(rows)


def _print_handlers(rows: list[dict[str, Any]]) -> None:
    columns = ["name", "queue", "requires", "max_attempts", "timeout_seconds", "workers", "signature"]
    print_table(
        [name.upper() for name in columns],
        [[_named(row[name]) if name == "requires" else row[name] for name in columns] for row in rows],
    )


def _rows(storage: Storage) -> list[dict[str, Any]]:
    from fleet.monitoring.observe import observe_workers
    from fleet.process import is_dead
    from fleet.worker.handlers.builtin import BUILTINS

    sight = observe_workers(storage, is_dead)
    known = {handler.name: handler.defaults for handler in BUILTINS}
    known.update({handler.name: handler for handler in storage.queue.handlers()})
    live = sight.live()
    return [
        _document(defaults, sorted(str(worker.worker_id) for worker in live if name in worker.handlers))
        for name, defaults in sorted(known.items())
    ]


def _document(defaults: HandlerDefaults, workers: list[str]) -> dict[str, Any]:
    return {
        "name": defaults.name,
        "queue": defaults.queue,
        "requires": None if defaults.requires is None else dict(defaults.requires),
        "max_attempts": defaults.max_attempts,
        "timeout_seconds": defaults.timeout,
        "retry": None if defaults.retry is None else defaults.retry.as_json(),
        "signature": defaults.signature,
        "workers": len(workers),
        "offered_by": workers,
    }


def _named(capabilities: Mapping[str, float] | None) -> str | None:
    if not capabilities:
        return None
    return ",".join(name if quantity == 1 else f"{name}={quantity:g}" for name, quantity in capabilities.items())
