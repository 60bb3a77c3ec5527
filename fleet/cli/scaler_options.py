"""The options of `fleet-scaler` in full: help, and one line for every mistake."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from fleet.cli.common import DatabaseOption, JsonOption, duration, new_app, run_command
from fleet.cli.scaler import NAME, SEPARATOR, SUBCOMMANDS, Given, execute
from fleet.domain.policies import BUILT_IN
from fleet.errors import UsageError
from fleet.plugins import hidden_policies, installed_policies

app = new_app("Compare how many workers a pool should have with how many it has; start or drain some.")


def _policies() -> str:
    """Return the policies that can be named here; what cannot be used says so when it is."""
    hidden = "".join(f"; {one} is never used: built in" for one in hidden_policies())
    return ", ".join(sorted({*BUILT_IN, *installed_policies()})) + hidden


WorkerOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- WORKER OPTIONS", help="Options of fleet-worker, such as --tasks; stored."),
]
PoolOption = Annotated[str, typer.Option(help="The pool to reconcile.")]
TargetOption = Annotated[
    int | None, typer.Option("--target-workers", metavar="N", help="Keep N workers (policy fixed).")
]
PolicyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"How the number is decided; stored. One of {_policies()}.")
]
ContentOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Policy and settings in one: 'scaling=vanilla; upper_task_ratio=5'; stored."),
]
MinOption = Annotated[int | None, typer.Option(metavar="N", help="Never fewer; stored.")]
MaxOption = Annotated[str | None, typer.Option(metavar="N|none", help="Never more; none: no limit; stored.")]
LaunchOption = Annotated[int | None, typer.Option(metavar="N", help="Start at most N workers in one pass; stored.")]


@app.command(
    epilog="Other commands: fleet-scaler plan (keep what would be done), apply (do what a plan says), replay "
    "(other policies on what happened), simulate (policies on made-up loads); each has a --help of its own."
)
def scale(
    worker_options: WorkerOptions = None,
    pool: PoolOption = "default",
    target_workers: TargetOption = None,
    policy: PolicyOption = None,
    policy_content: ContentOption = None,
    db_path: DatabaseOption = None,
    min_workers: MinOption = None,
    max_workers: MaxOption = None,
    max_launch_per_cycle: LaunchOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")] = False,
    json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what was observed, changed or not.")] = False,
    every: Annotated[
        float | None, typer.Option(metavar="D", parser=duration, help="Repeat the pass every D (30s, 5m).")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(metavar="D", parser=duration, help="Wait up to D until the workers are ready; else exit 4."),
    ] = None,
) -> int:
    """Compare how many workers a pool should have with how many it has; start or drain some.

    Settings are stored with the pool: the next pass need not repeat them. Worker options after -- are stored too, with
    this Python and this directory, and used for every worker started from then on. Prints nothing when nothing changed.
    """
    return execute(
        Given(
            worker_options=after_separator(worker_options),
            pool=pool,
            target_workers=target_workers,
            policy=policy,
            policy_content=policy_content,
            db_path=db_path,
            min_workers=min_workers,
            max_workers=max_workers,
            max_launch_per_cycle=max_launch_per_cycle,
            dry_run=dry_run,
            json=json,
            verbose=verbose,
            every=every,
            wait=wait,
        )
    )


def after_separator(words: list[str] | None) -> tuple[str, ...] | None:
    """Return the words after `--`; None where there is no `--`."""
    separated = SEPARATOR in sys.argv[1:]
    if words and words[0] in SUBCOMMANDS and not separated:
        raise UsageError(f"{words[0]} stands before all options: {NAME} {words[0]} ...")
    if words and not separated:
        raise UsageError(f"unexpected argument {words[0]!r}: worker options stand after --")
    return tuple(words or ()) if separated else None


def run_in_full() -> NoReturn:
    """Run `fleet-scaler` through the full parser."""
    run_command(app, NAME)
