"""Traces: when tasks arrived, as CSV with a header."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from fleet.domain.durations import parse_duration, parse_time
from fleet.domain.lanes import check_name, parse_capabilities
from fleet.errors import UsageError
from fleet.simulation.loads import MOST_TASKS, Row
from fleet.simulation.scenario import Kind

COLUMNS = ("time", "count", "task", "seconds", "requires")


def read_trace(name: str, lines: Iterable[str]) -> list[Row]:
    """Return the rows of a trace, times counted from its first where they are dates.

    Columns: `time` (seconds from the start, a duration such as 5m, or a time with its zone), `count` (default 1), and
    optionally `task`, `seconds` (a duration) and `requires` (`gpu mem=16`).

    Args:
        name: what to call it in messages.
        lines: its text.

    Raises:
        UsageError: it has no rows, or one that cannot be read; the message names the line.
    """
    rows = list(_rows(name, lines))
    if not rows:
        raise UsageError(f"trace {name} has no tasks: give lines under the header time,count")
    dated = {is_dated for is_dated, _ in rows}
    if len(dated) > 1:
        raise UsageError(f"trace {name} has both dates and seconds in its column time: give one of them")
    found = sorted((row for _, row in rows), key=_at)
    first = found[0].at if dated == {True} else 0.0
    return [Row(row.at - first, row.count, row.kind, row.seconds) for row in found]


def _rows(name: str, lines: Iterable[str]) -> Iterator[tuple[bool, Row]]:
    reader = csv.DictReader(lines)
    try:
        header = [column.strip() for column in reader.fieldnames or ()]
        unknown = sorted(set(header) - set(COLUMNS))
        if "time" not in header or unknown:
            raise UsageError(f"trace {name}: the first line names the columns: of {','.join(COLUMNS)} at least time")
        reader.fieldnames = header
        for values in reader:
            row = _row(f"trace {name} line {reader.line_num}", values)
            if row.count:
                yield _is_date(values["time"] or ""), row
    except csv.Error as error:
        raise UsageError(f"trace {name} line {reader.line_num}: {error}") from None


def _row(place: str, values: Mapping[str | None, str | None]) -> Row:
    if None in values:
        raise UsageError(f"{place}: there are more values than columns")
    said = {name: (values.get(name) or "").strip() for name in COLUMNS}
    try:
        kind = Kind(
            check_name("task", said["task"] or "task"),
            parse_capabilities(said["requires"].replace("+", ",").replace(" ", ",")),
        )
        seconds = parse_duration(said["seconds"]) if said["seconds"] else None
        return Row(_time(said["time"]), _count(said["count"] or "1"), kind, seconds)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


def _time(text: str) -> float:
    return parse_time(text).timestamp() if _is_date(text) else parse_duration(text)


def _is_date(text: str) -> bool:
    return "-" in text and not text.startswith("-")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_TASKS:
        raise UsageError(f"count {text!r:.40}: give a whole number up to {MOST_TASKS:,}")
    return int(text)


def _at(row: Row) -> float:
    return row.at
