"""A plot of outcomes as SVG: demand, workers and waiting time, one panel each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from fleet.domain.durations import format_seconds
from fleet.simulation.outcome import Outcome, Sample

MARK = "Fleet simulation"
"""Stands at the beginning of every plot of ours, so that none but those is overwritten."""
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 900, 170, 70, 20, 40, 40

PANELS: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("tasks that wait or run", lambda sample: sample.demand),
    ("workers", lambda sample: sample.workers),
    ("seconds waited", lambda sample: sample.wait),
)


def svg(outcomes: Sequence[Outcome], title: str) -> str:
    """Return the plot: a line for each outcome in each panel."""
    span = max([outcome.ended for outcome in outcomes] + [1.0])
    height = TOP + len(PANELS) * (PANEL + GAP) + 20 * len(outcomes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f"<!-- {MARK} -->",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(PANELS):
        parts += _panel(outcomes, name, value, TOP + place * (PANEL + GAP), span)
    legend = TOP + len(PANELS) * (PANEL + GAP)
    for place, outcome in enumerate(outcomes):
        y = legend + 20 * place
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="18" height="4" fill="{_colour(place)}"/>')
        parts.append(f'<text x="{LEFT + 26}" y="{y - 3}">{escape(summary(outcome))}</text>')
    return "\n".join([*parts, "</svg>", ""])


def summary(outcome: Outcome) -> str:
    """Return an outcome in a line."""
    left = f", {outcome.unfinished:,} of {outcome.tasks:,} tasks not done" if outcome.unfinished else ""
    return (
        f"{outcome.name}: mean wait {format_seconds(outcome.mean_wait)}, {outcome.worker_hours:.4g} worker-hours, "
        f"{outcome.flaps} changes of direction{left}"
    )


def _panel(
    outcomes: Sequence[Outcome], name: str, value: Callable[[Sample], float], top: float, span: float
) -> list[str]:
    most = max([value(sample) for outcome in outcomes for sample in outcome.series] + [1e-9])
    bottom, right = top + PANEL, WIDTH - RIGHT
    parts = [
        f'<text x="{LEFT}" y="{top - 6}">{escape(name)}</text>',
        f'<path d="M{LEFT},{top} V{bottom} H{right}" fill="none" stroke="#444"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * PANEL
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:.3g}</text>')
        parts.append(f'<path d="M{LEFT},{y:.1f} H{right}" stroke="#ddd"/>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + share * (right - LEFT)
        text = format_seconds(span * share)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
    for place, outcome in enumerate(outcomes):
        points = _points(outcome.series, value, (right - LEFT) / span, PANEL / most, bottom)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{_colour(place)}" stroke-width="1.5"/>')
    return parts


def _points(series: Sequence[Sample], value: Callable[[Sample], float], across: float, up: float, bottom: float) -> str:
    found = []
    for sample in series:
        y = bottom - value(sample) * up
        found.append(
            f"{LEFT + sample.at * across:.1f},{y:.1f} {LEFT + (sample.at + sample.seconds) * across:.1f},{y:.1f}"
        )
    return " ".join(found)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
