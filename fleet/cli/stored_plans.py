"""`fleet-scaler plan` and `fleet-scaler apply`: a plan to look at, and to carry out as it is or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fleet.cli.common import DatabaseOption, JsonOption, new_app, note, place, run_command
from fleet.cli.passes import Passes
from fleet.cli.plan_file import STANDARD, check_target, read, text_of, write
from fleet.cli.scaler import Given, passes_of
from fleet.cli.scaler_options import (
    ContentOption,
    LaunchOption,
    MaxOption,
    MinOption,
    PolicyOption,
    PoolOption,
    TargetOption,
    WorkerOptions,
    after_separator,
)
from fleet.config import working_directory
from fleet.domain.group import Template
from fleet.errors import UsageError
from fleet.scaler.stored_plan import carry_out, make_plan

PLAN = "fleet-scaler plan"
APPLY = "fleet-scaler apply"

planning = new_app("Say what a pass would do, and keep it.")
applying = new_app("Do what a plan says.")


@planning.command()
def plan(
    worker_options: WorkerOptions = None,
    pool: PoolOption = "default",
    target_workers: TargetOption = None,
    policy: PolicyOption = None,
    policy_content: ContentOption = None,
    db_path: DatabaseOption = None,
    min_workers: MinOption = None,
    max_workers: MaxOption = None,
    max_launch_per_cycle: LaunchOption = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="F", help="Write the plan there (over an earlier plan only); - prints it, for apply -."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Say what a pass with these settings would do, and keep it in a file for fleet-scaler apply.

    Nothing else is written: what is stored of settings and worker options is stored when the plan is applied.

    The database is read as for --dry-run: a copy that nobody may write will do.
    """
    passes = passes_of(
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
            json=json,
        )
    )
    if out not in (None, STANDARD):
        check_target(Path(out), passes.location.path)
    with passes.opened(read_only=True) as scaler:
        kept, decided = make_plan(scaler, passes.pool, passes.change)
    if out == STANDARD:
        print(text_of(kept), end="")
        return 0
    if out is not None:
        write(Path(out), text_of(kept), passes.location.path)
    passes.foretell(decided)
    if out is not None:
        note(f"written: {out}")
    return 0


@applying.command()
def apply(
    file: Annotated[str, typer.Argument(metavar="F", help="A plan that fleet-scaler plan has written; - reads one.")],
    pool: Annotated[str | None, typer.Option(help="Refuse the plan if it is of another pool.")] = None,
    db_path: DatabaseOption = None,
    json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what was observed, changed or not.")] = False,
) -> int:
    """Store the settings given to a plan and do what it says, all or nothing.

    Refused, with exit code 1 and one line that says what is different, when the world has moved since: other settings,
    groups, workers or adapters, or work for which a pass would now decide something else.
    """
    kept = read(file)
    if pool not in (None, kept.pool):
        raise UsageError(f"{file}: the plan is of pool {kept.pool}, not {pool}: leave out --pool")
    given = kept.change.template
    passes = Passes(
        location=place(db_path),
        pool=kept.pool,
        change=kept.change,
        # What the plan's own command line allowed, by this interpreter, as for a pass.
        own=Template(sys.executable, working_directory(), given.options if given else {}),
        given=given is not None,
        wait=None,
        as_json=json,
        verbose=verbose or (sys.stdout is not None and sys.stdout.isatty()),
    )
    with passes.opened(create=False) as scaler:
        return passes.tell(carry_out(scaler, kept))


def run_plan(arguments: Sequence[str]) -> NoReturn:
    """Run `fleet-scaler plan` and exit the process."""
    run_command(planning, PLAN, arguments)


def run_apply(arguments: Sequence[str]) -> NoReturn:
    """Run `fleet-scaler apply` and exit the process."""
    run_command(applying, APPLY, arguments)
