"""`fleet-scaler`: one reconcile pass for a pool, for a person or for cron."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from fleet.cli.output import finished, guarded, speak_utf8
from fleet.cli.passes import Passes
from fleet.cli.settings_file import said_in_file
from fleet.config import Location, locate, working_directory
from fleet.domain.durations import parse_duration
from fleet.domain.group import Template
from fleet.domain.lanes import check_name
from fleet.domain.policies.content import parse_content
from fleet.errors import UsageError
from fleet.scaler import change_of, check_given
from fleet.storage.interfaces import SettingsChange

NAME = "fleet-scaler"
SEPARATOR = "--"
SUBCOMMANDS = {
    "apply": "fleet.cli.stored_plans:run_apply",
    "plan": "fleet.cli.stored_plans:run_plan",
    "replay": "fleet.cli.replay:run_replay",
    "simulate": "fleet.cli.simulate:run_simulate",
}
"""First words that are no pass, with the functions that they are."""
LEAST_EVERY = 0.1
"""Seconds between two passes of a loop, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a command line gives; the fields are its options.

    Attributes:
        worker_options: the words after `--`; None when there is no `--`.
        every, wait: seconds.
    """

    worker_options: tuple[str, ...] | None = None
    pool: str = "default"
    target_workers: int | None = None
    policy: str | None = None
    policy_content: str | None = None
    db_path: str | None = None
    min_workers: int | None = None
    max_workers: str | None = None
    max_launch_per_cycle: int | None = None
    dry_run: bool = False
    json: bool = False
    verbose: bool = False
    every: float | None = None
    wait: float | None = None


def run() -> None:
    """Run `fleet-scaler` and exit the process."""
    if sys.argv[1:2] and sys.argv[1] in SUBCOMMANDS:
        _run_subcommand(sys.argv[1], sys.argv[2:])
    given = plain(sys.argv[1:])
    if given is None:
        from fleet.cli.scaler_options import run_in_full

        run_in_full()
    else:
        speak_utf8()
        sys.exit(finished(guarded(lambda: execute(given))))


def _run_subcommand(name: str, arguments: list[str]) -> NoReturn:
    """Run one of the commands that are no pass; each has its own module and is imported when it is wanted."""
    module, _, function = SUBCOMMANDS[name].partition(":")
    run: Callable[[list[str]], NoReturn] = getattr(importlib.import_module(module), function)
    run(arguments)


def execute(given: Given) -> int:
    """Do what a command line asks for; return the exit code."""
    _check_times(given)
    passes = passes_of(given)
    if given.dry_run:
        return passes.preview()
    if given.every is not None:
        passes.repeat(given.every)
    return passes.run_once()


def passes_of(given: Given) -> Passes:
    """Return the passes that a command line asks for; nothing is opened yet."""
    options = _options(given.worker_options)
    return Passes(
        location=_location(given.db_path),
        pool=check_name("--pool", given.pool),
        change=_change(given, options),
        own=_own_template(options),
        given=options is not None,
        wait=given.wait,
        as_json=given.json,
        verbose=given.verbose or (sys.stdout is not None and sys.stdout.isatty()),
    )


def _check_times(given: Given) -> None:
    if given.every is not None and given.every < LEAST_EVERY:
        raise UsageError(f"--every {given.every:g}s would never rest: give {LEAST_EVERY:g}s or more")
    if given.wait is not None and given.dry_run:
        raise UsageError("--dry-run starts nothing that --wait could wait for: leave one of them out")


def _options(words: tuple[str, ...] | None) -> dict[str, Any] | None:
    if words is None:
        return None
    from fleet.cli.options import parse_worker_options

    return dict(parse_worker_options(list(words)))


def _location(db_path: str | None) -> Location:
    location = locate(db_path)
    if location.shown == ":memory:":
        raise UsageError("a database in memory cannot be shared with workers: give --db-path a file")
    return location


def _own_template(options: dict[str, Any] | None) -> Template:
    return Template(sys.executable, working_directory(), options or {})


def _change(given: Given, options: dict[str, Any] | None) -> SettingsChange:
    said = _said(given)
    change = change_of({**said_in_file(Path.cwd(), given.pool, said), **said})
    if options is not None:
        change = replace(change, template=_own_template(options))
    # Before the database is opened: a line that makes no sense creates none.
    check_given(change)
    return change


def _said(given: Given) -> dict[str, object]:
    """Return the settings that a command line gives; what two of its options say must agree."""
    options = {
        "target_workers": given.target_workers,
        "policy": given.policy,
        "min_workers": given.min_workers,
        "max_workers": given.max_workers,
        "max_launch_per_cycle": given.max_launch_per_cycle,
    }
    said: dict[str, object] = {name: value for name, value in options.items() if value is not None}
    for name, value in parse_content(given.policy_content or "").items():
        if str(said.setdefault(name, value)) != value:
            raise UsageError(
                f"--{name.replace('_', '-')} {said[name]} and --policy-content {name}={value} disagree: leave one out"
            )
    if "target_workers" in said and said.setdefault("policy", "fixed") != "fixed":
        raise UsageError(f"--target-workers means policy fixed: leave out --policy {said['policy']}")
    return said


# Cron's command line, read without the command-line library, whose import costs more than the pass itself.

_TEXTS = ("--pool", "--policy", "--policy-content", "--db-path", "--max-workers")
_NUMBERS = ("--target-workers", "--min-workers", "--max-launch-per-cycle")
_DURATIONS = ("--every", "--wait")
_FLAGS = {"--dry-run": "dry_run", "--json": "json", "--verbose": "verbose", "-v": "verbose"}


def plain(words: list[str]) -> Given | None:
    """Return what a command line gives, when it is as plain as cron's are; None for anything that needs an answer.

    Help, unknown options and values that do not parse are left to the full parser in `scaler_options`, which explains.
    """
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word == SEPARATOR:
            values["worker_options"] = tuple(rest)
        elif word in _FLAGS:
            values[_FLAGS[word]] = True
        else:
            name, equals, value = word.partition("=")
            value = value if equals else next(rest, "")
            if not _take(values, name, value):
                return None
    return Given(**values)


def _take(values: dict[str, Any], name: str, text: str) -> bool:
    """Put an option's value into `values`; return False when it is no plain one."""
    field = name.removeprefix("--").replace("-", "_")
    if not text or text.startswith("-"):
        return False
    if name in _NUMBERS and text.isascii() and text.isdigit():
        values[field] = int(text)
    elif name in _TEXTS:
        values[field] = text
    elif name in _DURATIONS:
        try:
            values[field] = parse_duration(text)
        except UsageError:
            return False
    else:
        return False
    return True


if __name__ == "__main__":
    run()
