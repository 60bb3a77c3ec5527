"""`fleet-scaler replay`: another policy on a pool's own past, against what happened."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import (
    DatabaseOption,
    JsonOption,
    duration,
    new_app,
    note,
    opened,
    print_json,
    print_table,
    run_command,
)
from fleet.domain.durations import format_seconds
from fleet.domain.policies.content import parse_content
from fleet.domain.snapshot import PoolSettings
from fleet.errors import NotFound, UsageError
from fleet.plugins import find_policy
from fleet.scaler.replay import Happened, Past, Replay, replay_of
from fleet.scaler.settings import applied_to, change_of, checked
from fleet.simulation import Outcome
from fleet.simulation.plotting import check_target, terminal, write_plot

if TYPE_CHECKING:
    from fleet.storage.interfaces import Storage

NAME = "fleet-scaler replay"
WEEK = 7 * 86_400.0
MOST_DECISIONS = 200_000
LEAST_EVERY = 0.1
COLUMNS = ("policy", "mean wait", "p95", "worker-hours", "launches", "flaps", "most", "done", "left")
HAPPENED = "what happened"

Contestant = tuple[str, PoolSettings]
"""What to call it, and the policy with its settings and bounds."""

app = new_app("Run a policy on a pool's own past.")


@app.command()
def replay(
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy; what the pool has set of its settings stays. Repeatable."),
    ] = None,
    policy_content: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A policy with settings: 'scaling=vanilla; upper_task_ratio=5'. Repeatable."),
    ] = None,
    since: Annotated[
        float | None, typer.Option(metavar="D", parser=duration, help="How far back: 1h, 7d. Default: 7d.")
    ] = None,
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool.")] = "default",
    every: Annotated[
        float | None,
        typer.Option(metavar="D", parser=duration, help="Time between two passes. Default: as the ledger tells it."),
    ] = None,
    max_workers: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Never more. Default: as the pool has it.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of boot times and failed launches.")] = 0,
    db_path: DatabaseOption = None,
    json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="F", help="Write a plot: F.svg, or F.png with matplotlib.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file that is no plot.")] = False,
) -> None:
    """Run policies on a pool's own past: what came to the queue, and how long it took, is simulated again.

    Prints what happened, by the ledger and the queue, then a line for each policy: the pool's own first, so that it
    shows how near to the truth the simulation is. Nothing is written to the database.
    """
    if out is not None:
        check_target(out, force=force)
    if every is not None and every < LEAST_EVERY:
        raise UsageError(f"--every {every:g}s: give {LEAST_EVERY:g}s or more")
    with opened(db_path, read_only=True) as storage:
        past = read_past(storage, pool, since or WEEK)
    own = past.settings if max_workers is None else _settings(pool, {"max_workers": max_workers}, past.settings)
    contestants = _contestants(pool, policy or [], policy_content or [], own)
    prepared = replay_of(past, every, seed)
    outcomes = [prepared.outcome(settings, name) for name, settings in contestants]
    title = f"pool {pool}, {_span(prepared)}; a pass every {prepared.scenario.every:g} s"
    if json:
        print_json(_document(pool, prepared, outcomes))
    else:
        _print(prepared, outcomes, title)
        for line in _unknown(prepared, since):
            note(f"not known: {line}")
    if out is not None:
        write_plot(outcomes, title, out, force=force)
        note(f"written: {out}")


def read_past(storage: Storage, pool: str, seconds: float) -> Past:
    """Return what is known of a pool's past; raise NotFound where there is no such pool."""
    from fleet.domain.adapters import native_id
    from fleet.process import identify, is_dead

    stored = storage.control.settings(pool)
    if stored is None:
        names = ", ".join(each.pool for each in storage.control.pools())
        raise NotFound(f"pool {pool}: there is none" + (f": there are {names}" if names else ": no scaler has run yet"))
    since = storage.now() - timedelta(seconds=seconds)
    # Read as for a policy that follows the work, so that work and pools are known whatever the pool's policy is.
    looking = replace(stored.settings, policy="drain_time", settings={})
    ledger = storage.control.decisions(pool, since=since, limit=MOST_DECISIONS)
    return Past(
        snapshot=storage.control.snapshot(pool, looking, native_id(identify().host or ""), is_dead),
        settings=stored.settings,
        history=storage.control.history(since),
        ledger=tuple(reversed(ledger)),
        groups=storage.control.groups(pool),
    )


def _contestants(pool: str, names: Sequence[str], contents: Sequence[str], own: PoolSettings) -> list[Contestant]:
    found = [(name, _settings(pool, {"policy": name}, own)) for name in names]
    for content in contents:
        given = {"policy": own.policy, **parse_content(content)}
        called = "; ".join([given["policy"], *(f"{key}={value}" for key, value in given.items() if key != "policy")])
        found.append((called, _settings(pool, given, own)))
    if _is_worth_a_run(own) and own.policy not in names:
        return [(f"{own.policy} (as it is)", own), *found]
    if not found:
        raise UsageError(f"policy {own.policy} does not follow the work: give --policy NAME, such as drain_time")
    return found


def _is_worth_a_run(own: PoolSettings) -> bool:
    try:
        return find_policy(own.policy).is_elastic
    except UsageError:
        # What is not known here cannot be run again; others can.
        return False


def _settings(pool: str, given: Mapping[str, object], own: PoolSettings) -> PoolSettings:
    """Return a policy with what the pool has set already, as far as the policy knows it, and what is given."""
    return applied_to(own, checked(pool, change_of(given), own))


# What is printed


def _span(prepared: Replay) -> str:
    return f"{prepared.since:%Y-%m-%d %H:%M:%S}Z to {prepared.until:%Y-%m-%d %H:%M:%S}Z"


def _unknown(prepared: Replay, since: float | None) -> Iterator[str]:
    yield from prepared.unknown
    if since is None and (prepared.until - prepared.since).total_seconds() >= WEEK - 60:
        yield "what was before: the last week is run again; give a longer --since if more is kept"


def _document(pool: str, prepared: Replay, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "pool": pool,
        "since": prepared.since,
        "until": prepared.until,
        "every": prepared.scenario.every,
        "happened": asdict(prepared.happened),
        "replayed": [outcome.as_json() for outcome in outcomes],
        "unknown": list(prepared.unknown),
    }


def _print(prepared: Replay, outcomes: Sequence[Outcome], title: str) -> None:
    print(title)
    print_table(COLUMNS, [_truth(prepared.happened), *(_row(outcome) for outcome in outcomes)])
    if sys.stdout is None or not sys.stdout.isatty():
        return
    width = shutil.get_terminal_size().columns
    for outcome in outcomes:
        print(f"\n{outcome.name}"[: width + 1])
        print("\n".join(terminal(outcome, width)))


def _truth(happened: Happened) -> tuple[object, ...]:
    return (
        HAPPENED,
        *(None if each is None else format_seconds(each) for each in (happened.mean_wait, happened.p95_wait)),
        None if happened.worker_hours is None else float(f"{happened.worker_hours:.4g}"),
        happened.launches,
        happened.flaps,
        None,
        None,
        None,
    )


def _row(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.name,
        format_seconds(outcome.mean_wait),
        format_seconds(outcome.p95_wait),
        float(f"{outcome.worker_hours:.4g}"),
        outcome.launches,
        outcome.flaps,
        outcome.most_workers,
        outcome.done,
        outcome.unfinished,
    )


def run_replay(arguments: Sequence[str]) -> None:
    """Run `fleet-scaler replay` and exit the process."""
    run_command(app, NAME, arguments)


__all__ = ["read_past", "replay", "run_replay"]
