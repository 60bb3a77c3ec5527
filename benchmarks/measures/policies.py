"""All policies on the same loads in virtual time: waiting, worker-hours, and changes of direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean

from benchmarks import trials
from benchmarks.outcome import Check, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.scale import Scale
from benchmarks.trials import CHAMPION, FIFTEEN, TRIALS, Trial
from fleet.simulation import Outcome as Simulated

GOAL = 8
LEAST_WAIT = 0.05
"""Seconds: waits are compared as if none were shorter."""
COLUMNS = ("policy", "mean wait", "p95", "max", "worker-hours", "launches", "flaps", "not done")
NOTE = (
    "Virtual time; seconds; means of {seeds} seeds. Worker-hours from a worker's order to its end, until the load's "
    "end. `*`: no policy that waited less used fewer worker-hours."
)


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Try every policy on every load."""
    tables, checks = [], []
    for trial in TRIALS:
        seeds = range(scale.few)
        found = trials.held(_shortened(trial, scale), seeds)
        tables.append(table(trial.name, found, len(seeds)))
        checks += compared(trial.name, found)
        if trial is FIFTEEN:
            last = max(one.last_done if one.last_done is not None else 1e9 for one in found[CHAMPION])
            checks.append(Check(GOAL, f"{trial.name}: the last is done after", last, 15.0, at_least=False, unit=" s"))
    return Outcome(tuple(tables), tuple(checks))


def _shortened(trial: Trial, scale: Scale) -> Trial:
    return replace(trial, until=min(trial.until, 120.0)) if scale.name == "short" else trial


def compared(name: str, found: Mapping[str, Sequence[Simulated]]) -> list[Check]:
    """Return how the champion stands against the others on one load."""
    figures = {policy: _figures(outcomes) for policy, outcomes in found.items() if _is_complete(outcomes)}
    if CHAMPION not in figures:
        return [Check(GOAL, f"{name}: {CHAMPION} does all tasks", 0.0, 1.0, unit="")]
    wait, hours = figures[CHAMPION]
    better = sum(1 for other, cost in figures.values() if other < wait and cost < hours)
    best = min(other for other, cost in figures.values() if cost <= hours)
    ratio = max(wait, LEAST_WAIT) / max(best, LEAST_WAIT)
    return [
        Check(GOAL, f"{name}: policies better in both", float(better), 0.0, at_least=False, unit=""),
        Check(GOAL, f"{name}: wait over the best for no more", ratio, 1.25, at_least=False),
    ]


def _is_complete(outcomes: Sequence[Simulated]) -> bool:
    return not any(outcome.unfinished for outcome in outcomes)


def _figures(outcomes: Sequence[Simulated]) -> tuple[float, float]:
    return mean(one.mean_wait for one in outcomes), mean(one.worker_hours for one in outcomes)


def table(name: str, found: Mapping[str, Sequence[Simulated]], seeds: int) -> Table:
    """Return one load's table, the shortest wait first."""
    figures = {policy: _figures(outcomes) for policy, outcomes in found.items()}
    rows = []
    for policy, outcomes in sorted(found.items(), key=lambda item: figures[item[0]]):
        wait, hours = figures[policy]
        is_best = _is_complete(outcomes) and not any(
            other < wait and cost < hours for key, (other, cost) in figures.items() if _is_complete(found[key])
        )
        means = [
            mean(getattr(one, figure) for one in outcomes)
            for figure in ("mean_wait", "p95_wait", "max_wait", "worker_hours", "launches", "flaps", "unfinished")
        ]
        rows.append((policy + " *" * is_best, *map(number, means)))
    return Table(f"Policies: {name}", COLUMNS, tuple(rows), NOTE.format(seeds=seeds))
