"""`fleet-scaler simulate`: policies on made-up loads, in virtual time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import JsonOption, duration, new_app, note, print_json, print_table, run_command
from fleet.clock import boottime
from fleet.domain.durations import format_seconds
from fleet.domain.policies.content import parse_content
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.scaler import NEW_POOL, applied_to, change_of, checked
from fleet.simulation import Outcome, Scenario, run
from fleet.simulation.chances import parse_chance
from fleet.simulation.loads import FORMS, Row, gathered, parse_load
from fleet.simulation.places import FORM, parse_place, parse_share
from fleet.simulation.plotting import check_target, terminal, write_plot
from fleet.simulation.scenario import Kind, Place
from fleet.simulation.traces import read_trace

NAME = "fleet-scaler simulate"
DEFAULT_POLICY = "drain_time"
DEFAULT_LOAD = "steady:rate=2"
TRACE = "trace:"
HOUR = 3600.0

app = new_app("Try policies on a load in virtual time.")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A policy with settings, and what to call it."""

    name: str
    settings: PoolSettings


@app.command()
def simulate(
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A policy with its defaults; repeatable. Default: {DEFAULT_POLICY}."),
    ] = None,
    target_workers: Annotated[
        list[int] | None,
        typer.Option("--target-workers", metavar="N", min=0, help="Policy fixed with N workers; repeatable."),
    ] = None,
    policy_content: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A policy with settings: 'scaling=fixed; target_workers=4'; repeatable."),
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option(metavar="LOAD", help=f"How tasks arrive; repeatable: {FORMS}. Default: {DEFAULT_LOAD}."),
    ] = None,
    seconds: Annotated[
        str,
        typer.Option(metavar="DIST", help="How long tasks take: 6s, exponential:6s, lognormal:6s:1.5, uniform:2s:10s."),
    ] = "1s",
    boot: Annotated[str, typer.Option(metavar="DIST", help="From a worker's order until it is ready.")] = "1s",
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADAPTER",
            help=f"Who starts workers; repeatable: {FORM}. Words: max, group, whole, room (what there really is), "
            "boot, failures, priority; others are capabilities. Default: native, without limits.",
        ),
    ] = None,
    launch_failures: Annotated[str, typer.Option(metavar="SHARE", help="The share of launches that fail.")] = "0",
    worker_failures: Annotated[
        float, typer.Option(metavar="N", min=0, help="How often a worker dies, in an hour of its life.")
    ] = 0.0,
    every: Annotated[
        float, typer.Option(metavar="D", parser=duration, show_default="1s", help="Time between two passes.")
    ] = 1.0,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="D",
            parser=duration,
            help="Tasks arrive for so long; the simulation ends when they are done. Default: 1h, a trace's own length.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of everything that is drawn: the same gives the same.")] = 0,
    workers: Annotated[int, typer.Option(metavar="N", min=0, max=100_000, help="Workers at the start.")] = 0,
    min_workers: Annotated[int, typer.Option(metavar="N", min=0, help="Never fewer.")] = 0,
    max_workers: Annotated[str, typer.Option(metavar="N|none", help="Never more.")] = "none",
    max_launch_per_cycle: Annotated[int, typer.Option(metavar="N", min=1, help="Launches of one pass at most.")] = 100,
    json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="F", help="Write a plot: F.svg, or F.png with matplotlib.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file that is no plot.")] = False,
) -> int:
    """Try policies on a load in virtual time: the same decisions as fleet-scaler's, without workers or a database.

    Prints a line for each policy: waiting times, worker-hours (from a worker's order to its end), launches, and changes
    of direction; on a terminal also demand, workers and waiting time as bars. Exit code 1 when tasks were left.
    """
    if out is not None:
        check_target(out, force=force)
    bounds = _bounds(min_workers, max_workers, max_launch_per_cycle)
    fixed = [f"scaling=fixed; target_workers={number}" for number in target_workers or ()]
    contestants = _contestants(policy or [], [*fixed, *(policy_content or ())], bounds)
    share = parse_share("--launch-failures", launch_failures)
    boots = parse_chance("--boot", boot)
    places = tuple(parse_place(text, boots, share) for text in adapter or ()) or (Place(boot=boots, failing=share),)
    if len({place.name for place in places}) < len(places):
        raise UsageError("two adapters have one name: give each its own")
    texts = load or [DEFAULT_LOAD]
    rows = [row for text in texts if text.startswith(TRACE) for row in _trace(text.removeprefix(TRACE))]
    loads = [parse_load(text) for text in texts if not text.startswith(TRACE)]
    if for_ is not None:
        rows = [row for row in rows if row.at <= for_]
    until = for_ if for_ is not None else HOUR if loads else max(row.at for row in rows)
    if every < LEAST_EVERY:
        raise UsageError(f"--every {every:g}s: give {LEAST_EVERY:g}s or more")
    scenario = Scenario(
        tasks=gathered(loads, parse_chance("--seconds", seconds), until, seed, rows),
        places=places,
        every=every,
        until=until,
        seed=seed,
        worker_failures=worker_failures,
        supply=workers,
    )
    outcomes = [_outcome(scenario, each) for each in contestants]
    title = f"{', '.join(texts)}; a pass every {every:g} s"
    _print(outcomes, title, as_json=json)
    _tell_unserved(scenario.unservable())
    if out is not None:
        write_plot(outcomes, title, out, force=force)
        note(f"written: {out}")
    return int(any(outcome.unfinished for outcome in outcomes))


LEAST_EVERY = 0.1


def _bounds(least: int, most: str, launches: int) -> PoolSettings:
    """Return what all contestants are told, where they are told nothing of their own."""
    given = {"min_workers": least, "max_workers": most, "max_launch_per_cycle": launches}
    return applied_to(NEW_POOL, checked(NAME, change_of(given), NEW_POOL))


def _contestants(names: Sequence[str], contents: Sequence[str], base: PoolSettings) -> list[Contestant]:
    found = [_contestant({"policy": name}, base, name) for name in names]
    for content in contents:
        given = {"policy": DEFAULT_POLICY, **parse_content(content)}
        called = "; ".join([given["policy"], *(f"{key}={value}" for key, value in given.items() if key != "policy")])
        found.append(_contestant(given, base, called))
    return found or [_contestant({"policy": DEFAULT_POLICY}, base, DEFAULT_POLICY)]


def _contestant(given: Mapping[str, str], base: PoolSettings, called: str) -> Contestant:
    return Contestant(called, applied_to(base, checked(NAME, change_of(given), base)))


def _trace(file: str) -> list[Row]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            return read_trace(file, lines)
    except OSError as error:
        raise UsageError(f"trace {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"trace {file} is no text") from None


# What is printed

COLUMNS = (
    *("policy", "mean wait", "p50", "p95", "max", "worker-hours", "launches", "flaps", "most", "done", "left"),
    "last done",
)


def _outcome(scenario: Scenario, contestant: Contestant) -> Outcome:
    progress = _Progress(contestant.name, max(scenario.until, scenario.tasks.times[-1]))
    try:
        return run(scenario, contestant.settings, contestant.name, progress)
    finally:
        progress.clear()


class _Progress:
    """A line on a terminal's stderr that says how far a long simulation is."""

    def __init__(self, name: str, last: float) -> None:
        self._name = name
        self._last = last
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._told = boottime()
        self._is_told = False

    def __call__(self, now: float) -> None:
        if not self._is_shown or boottime() - self._told < 0.5:
            return
        self._told = boottime()
        self._is_told = True
        text = f"{self._name}: {format_seconds(now)} of at least {format_seconds(self._last)}"
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._is_told:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print(outcomes: Sequence[Outcome], title: str, *, as_json: bool) -> None:
    if as_json:
        print_json([outcome.as_json() for outcome in outcomes])
        return
    print_table(COLUMNS, [_row(outcome) for outcome in outcomes])
    if sys.stdout is None or not sys.stdout.isatty():
        return
    width = shutil.get_terminal_size().columns
    print(f"\n{title}"[: width + 1])
    for outcome in outcomes:
        print(f"\n{outcome.name}"[: width + 1])
        print("\n".join(terminal(outcome, width)))


def _row(outcome: Outcome) -> tuple[object, ...]:
    waits = (outcome.mean_wait, outcome.p50_wait, outcome.p95_wait, outcome.max_wait)
    return (
        outcome.name,
        *map(format_seconds, waits),
        float(f"{outcome.worker_hours:.4g}"),
        outcome.launches,
        outcome.flaps,
        outcome.most_workers,
        outcome.done,
        outcome.unfinished,
        None if outcome.last_done is None else format_seconds(outcome.last_done),
    )


def _tell_unserved(kinds: Sequence[tuple[Kind, int]]) -> None:
    for kind, number in kinds:
        needs = ", ".join(f"{name}={quantity:g}" for name, quantity in kind.requires.items())
        note(f"no adapter starts workers that could serve {number} tasks of {kind.task}" + f" ({needs})" * bool(needs))


def run_simulate(arguments: Sequence[str]) -> None:
    """Run `fleet-scaler simulate` and exit the process."""
    run_command(app, NAME, arguments)


__all__ = ["run_simulate", "simulate"]
