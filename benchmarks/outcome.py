"""What a measure found: tables to read, and checks of the goals."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.compare import Series


@dataclass(frozen=True)
class Table:
    """One table of the report.

    Attributes:
        title: its heading.
        columns: names of the columns.
        rows: texts, as many in each as there are columns.
        note: how it was measured, in a sentence or a few.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """One figure of a goal.

    Attributes:
        goal: the goal's number.
        what: what the figure is.
        value: the figure.
        bound: what it is held against.
        at_least: whether it should be no less than the bound; else no more.
        unit: of both.
    """

    goal: int
    what: str
    value: float
    bound: float
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Figure:
    """One figure that no goal is about.

    Attributes:
        what: what it is.
        value: the figure.
        unit: its unit.
    """

    what: str
    value: float
    unit: str = "x"


@dataclass(frozen=True)
class Outcome:
    """What one measure found.

    Attributes:
        tables: to read.
        checks: of the goals.
        bars: no-op tasks per second by contestant, for the plot.
        figures: that no goal is about, and that are worth a line beside them.
    """

    tables: tuple[Table, ...]
    checks: tuple[Check, ...] = ()
    bars: dict[str, Series] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()


def number(value: float) -> str:
    """Return a figure with three digits that count."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:,.{digits}f}"


def span(series: Series) -> str:
    """Return the smallest and the largest of the rounds."""
    return f"{number(series.lowest)}–{number(series.highest)}"
