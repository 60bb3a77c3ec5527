"""The report: Markdown tables, and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.compare import Series
from benchmarks.outcome import Table

HEAD = """# Benchmarks

Written by `scripts/bench`. Ratios are of one run on one machine; seconds of another machine are others. How each figure
is made stands in `benchmarks/`, one file a measure.
"""


def markdown(table: Table) -> str:
    """Return a table with its heading and note."""
    head = [_line(table.columns), _line(["---"] * len(table.columns))]
    parts = [f"## {table.title}", table.note, "\n".join([*head, *map(_line, table.rows)])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write(path: Path, tables: Iterable[Table], bars: Mapping[str, Series]) -> None:
    """Write the report, and the plot beside it when there is something to plot.

    Args:
        path: a Markdown file; the plot has its name in small letters and ends with `.svg`.
        tables: in their order.
        bars: no-op tasks per second by contestant.
    """
    picture = path.with_name(path.stem.lower() + ".svg")
    shown = f"\n![No-op tasks per second]({picture.name})\n" if bars and plot(picture, bars) else ""
    path.write_text(HEAD + shown + "\n" + "\n".join(map(markdown, tables)))


def plot(path: Path, bars: Mapping[str, Series]) -> bool:
    """Draw the rates as bars on a logarithmic scale; return False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fleet"
    from matplotlib import pyplot

    names = sorted(bars, key=lambda name: bars[name].median)
    medians = [bars[name].median for name in names]
    spans = [
        [middle - bars[name].lowest for name, middle in zip(names, medians, strict=True)],
        [bars[name].highest - middle for name, middle in zip(names, medians, strict=True)],
    ]
    colours = ["#1f6f8b" if name.startswith("Fleet") else "#b8b8b8" for name in names]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(names) + 1.2))
    drawn = axes.barh(names, medians, xerr=spans, color=colours, ecolor="#555555", capsize=2)
    axes.bar_label(drawn, [f" {middle:,.0f}" for middle in medians])
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("no-op tasks per second (medians; whiskers: all rounds)")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
