"""Plots of outcomes: bars for a terminal, and files as SVG or PNG that overwrite nothing but plots."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fleet.domain.durations import format_seconds
from fleet.errors import ConflictError, UsageError
from fleet.simulation.outcome import Outcome, Sample
from fleet.simulation.svg import MARK, PANELS, svg

BARS = " ▁▂▃▄▅▆▇█"
LEAST_WIDTH = 20
_LABEL = 9
_HEAD = 4096


def terminal(outcome: Outcome, width: int) -> list[str]:
    """Return demand, workers and waiting time as lines of bars, none wider than `width` characters.

    Args:
        outcome: what to show.
        width: of the terminal.
    """
    names = ("demand", "workers", "waiting")
    tops = [max([value(sample) for sample in outcome.series] + [0.0]) for _, value in PANELS]
    ends = (f" {tops[0]:.4g}", f" {tops[1]:.4g}", f" {format_seconds(tops[2])}")
    room = max(1, max(LEAST_WIDTH, width) - _LABEL - max(map(len, ends)))
    lines = []
    for name, (_, value), top, end in zip(names, PANELS, tops, ends, strict=True):
        lines.append(f"{name:<{_LABEL}}{_bars(outcome, value, top, room)}{end}")
    end = format_seconds(outcome.ended)
    lines.append(" " * _LABEL + "0" + end.rjust(room - 1) if len(end) < room else " " * _LABEL + "0")
    return lines


def _bars(outcome: Outcome, value: Callable[[Sample], float], top: float, room: int) -> str:
    """Return one bar for each column: the greatest value in it."""
    columns = [0.0] * room
    span = max(outcome.ended, 1e-9)
    for sample in outcome.series:
        first = min(room - 1, int(sample.at / span * room))
        last = min(room - 1, max(first, int((sample.at + sample.seconds) / span * room - 1e-9)))
        for column in range(first, last + 1):
            columns[column] = max(columns[column], value(sample))
    return "".join(BARS[0] if each <= 0 or top <= 0 else BARS[max(1, round(each / top * 8))] for each in columns)


def check_target(path: Path, *, force: bool = False) -> None:
    """See that a plot can be written there, before it is made.

    Raises:
        UsageError: a suffix that is neither .svg nor .png, or no matplotlib for a PNG.
        ConflictError: there is a file that is no plot of ours and `force` is not given, or that is a database.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--out {path}: plots are written as .svg or .png")
    if path.suffix.lower() == ".png":
        _pyplot()
    if path.is_dir():
        raise ConflictError(f"--out {path} is a directory")
    if not path.parent.is_dir():
        raise ConflictError(f"--out {path}: there is no directory {path.parent}")
    if not path.exists():
        return
    head = _head(path)
    if b"SQLite format 3" in head[:16]:
        raise ConflictError(f"--out {path} is a database: nothing was written")
    if not force and MARK.encode() not in head:
        raise ConflictError(f"--out {path} exists and is no plot of ours: give another name, or --force")


def _head(path: Path) -> bytes:
    if not path.is_file():
        raise ConflictError(f"--out {path} is no file: nothing was written")
    with path.open("rb") as file:
        return file.read(_HEAD)


def write_plot(outcomes: Sequence[Outcome], title: str, path: Path, *, force: bool = False) -> None:
    """Write the plot as its suffix says: SVG, or PNG where matplotlib is installed. It is there whole, or not at all.

    Args:
        outcomes: what to plot.
        title: above it.
        path: where.
        force: write over a file that is no plot of ours; never over a database.

    Raises: as `check_target`.
    """
    check_target(path, force=force)
    content = _png(outcomes, title) if path.suffix.lower() == ".png" else svg(outcomes, title).encode()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _pyplot() -> Any:
    try:
        # No dependency: by name, so that the type checker needs it as little as we do.
        import_module("matplotlib").use("Agg")
    except ImportError:
        raise UsageError("--out: a .png needs matplotlib, which is not installed: write a .svg instead") from None
    return import_module("matplotlib.pyplot")


def _png(outcomes: Sequence[Outcome], title: str) -> bytes:
    from io import BytesIO

    pyplot = _pyplot()
    figure, panels = pyplot.subplots(len(PANELS), 1, sharex=True, figsize=(9, 7))
    for axes, (name, value) in zip(panels, PANELS, strict=True):
        axes.set_title(name, loc="left", fontsize=9)
        for outcome in outcomes:
            series = outcome.series
            axes.step([one.at for one in series], [value(one) for one in series], where="post", label=outcome.name)
    panels[0].legend(fontsize=8)
    panels[-1].set_xlabel("seconds")
    figure.suptitle(title, fontsize=10)
    into = BytesIO()
    figure.savefig(into, format="png", metadata={"Software": MARK})
    pyplot.close(figure)
    return into.getvalue()
