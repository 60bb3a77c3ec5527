"""Policies on loads that are drawn: how far what is said of the chosen ones holds for others.

Even numbers are for tuning; odd ones are kept apart, and are what counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import trials
from benchmarks.measures.policies import compared
from benchmarks.outcome import Figure, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.scale import Scale

NOTE = (
    "Loads whose kind, rate, durations, boot times and passes are drawn. Those with even numbers may be tuned on, "
    "those with odd ones are kept apart. Better in both: policies with less waiting and fewer worker-hours than "
    "drain_time. Ratio: its mean wait over that of the best policy that uses no more worker-hours."
)
KEPT_APART, FOR_TUNING = "kept apart", "for tuning"


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Try every policy on drawn loads, and count where drain_time keeps what is said of it."""
    rows, kept = [], {FOR_TUNING: [0, 0, 0], KEPT_APART: [0, 0, 0]}
    for seed in range({"full": 60, "quick": 20}.get(scale.name, 2)):
        trial = trials.varied(seed)
        checks = compared(trial.name, trials.held(trial, (seed,)))
        part = KEPT_APART if seed % 2 else FOR_TUNING
        kept[part][0] += 1
        kept[part][1] += checks[0].met
        kept[part][2] += checks[-1].met
        rows.append((trial.name, part, *(number(check.value) for check in (checks[0], checks[-1]))))
    figures = [
        Figure(f"drawn loads {part}: {what}", 100 * counts[place] / counts[0], " %")
        for part, counts in kept.items()
        for place, what in ((1, "nobody better in both"), (2, "wait at most 1.25x the best for no more"))
    ]
    table = Table("Policies on drawn loads", ("load", "part", "better in both", "ratio"), tuple(rows), NOTE)
    return Outcome((table,), (), figures=tuple(figures))
