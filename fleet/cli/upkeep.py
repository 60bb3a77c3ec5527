"""`fleet prune`, `fleet config`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleet.cli.common import DatabaseOption, JsonOption, duration, new_app, opened, print_json, print_table
from fleet.domain.durations import parse_duration
from fleet.errors import UsageError

OFF = "off"
UNITS = (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0))

config_app = new_app("Settings of the whole fleet.")

SETTINGS = {
    "age": "how much waiting is worth one step of priority; off: priority alone decides",
    "retention": "how long what has ended is kept; off: for ever",
}


def add_commands(app: typer.Typer) -> None:
    """Add these commands to `fleet`."""
    app.command()(prune)
    app.add_typer(config_app, name="config")


def prune(
    older_than: Annotated[
        float,
        typer.Option("--older-than", parser=duration, metavar="D", help="What ended so long ago: 7d, 12h, 0."),
    ],
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what has ended: tasks, workers, groups, ticks, batches, decisions, events. Open tasks stay."""
    from fleet.maintenance.pruning import prune as prune_all

    deleted: dict[str, int] = {}
    with opened(db_path) as storage:
        for so_far in prune_all(storage, older_than):
            deleted = dict(so_far)
            if sys.stderr.isatty() and not as_json:
                print(f"\rpruning: {sum(deleted.values())} rows", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty() and not as_json:
            print(file=sys.stderr)
    if as_json:
        print_json(deleted)
    else:
        print(", ".join(f"{number} {name}" for name, number in deleted.items() if number) or "nothing to prune")


@config_app.command("get")
def get_settings(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of: {', '.join(SETTINGS)}.")] = None,
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one setting, or all."""
    if name is not None and name not in SETTINGS:
        raise UsageError(f"setting {name!r}: there are {', '.join(SETTINGS)}")
    with opened(db_path, read_only=True) as storage:
        found = storage.rules.settings()
    if as_json:
        print_json({f"{key}_seconds": found[key] for key in ([name] if name else sorted(found))})
    elif name is not None:
        print(_shown(found[name]))
    else:
        rows = [[key, _shown(found[key]), SETTINGS.get(key)] for key in sorted(found)]
        print_table(["NAME", "VALUE", "MEANING"], rows, widest=120)


@config_app.command("set")
def set_setting(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(SETTINGS)}.")],
    value: Annotated[str, typer.Argument(metavar="D|off", help="A duration such as 10m, or off.")],
    db_path: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a setting. A new age ranks the open tasks anew."""
    if name not in SETTINGS:
        raise UsageError(f"setting {name!r}: there are {', '.join(SETTINGS)}")
    seconds = None if value == OFF else parse_duration(value)
    if seconds is not None and seconds < 1:
        raise UsageError(f"{name} {value!r}: give at least 1 second, or off")
    with opened(db_path) as storage:
        storage.rules.set_setting(name, seconds)
    if as_json:
        print_json({f"{name}_seconds": seconds})
    else:
        print(f"{name}: {_shown(seconds)}")


def _shown(seconds: float | None) -> str:
    """Return a setting as `config set` takes it."""
    if seconds is None:
        return OFF
    return next((f"{seconds / size:g}{unit}" for unit, size in UNITS if seconds % size == 0), f"{seconds}s")
