"""The goals, and whether a run met them."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.outcome import Check, Figure, Table, number

TEXTS = {
    1: "No-op end to end, default settings, 4 workers: at least 15x huey, 10x litequeue, 80x flatmachines "
    "and 2.5x F1, slowest worker at least two thirds of the fastest; strict (--prefetch 1): at least "
    "0.45x F1, 0.8x F1s and 3x huey, with fair progress.",
    2: "Bulk enqueue at least 0.4x raw executemany into a bare table and at least 2x executemany into ours; "
    "single enqueue at equal durability at least as fast as the fastest peer; an enqueuer beside a busy "
    "fleet waits p99 <= 50 ms.",
    3: "Latency on an idle fleet p50 <= 2 ms, p99 <= 10 ms, bursts included, with an idle fleet of 16 "
    "workers under 1 % of one core in all; without inotify p50 <= 5 ms and 3 %.",
    4: "100 workers ready in at most a fifteenth of the time of 100 separate interpreters; private memory <="
    " 8 MiB each.",
    5: "Claim cost flat: <= 1.2x from an empty table to 5,000,000 finished and 1,000,000 waiting rows that "
    "do not match.",
    6: "Scaler pass at 10,000 registered workers and 1,000,000 pending tasks: <= 0.5 s beyond process start."
    " Heartbeats of 1,000 workers at 10 s: under 2 % of the database's write capacity.",
    7: '`fleet --help` and `fleet status` start within 1.3x of `python -c "import sqlalchemy, typer"`.',
    8: "On every load no policy beats `drain_time` in both waiting time and worker-hours, and its mean wait is at most "
    "1.25x that of the best policy that uses no more worker-hours; 15 tasks of 6 s with at most 10 workers end within "
    "15 s.",
    9: "1,000,000 tasks on up to 10,000 workers simulated in under a minute.",
    10: "On PostgreSQL, at equal durability: no-op end to end with 1, 4 and 8 workers at least 2x the faster of "
    "procrastinate and pgqueuer; latency on an idle fleet p50 <= 5 ms.",
}


def verdict(check: Check) -> str:
    """Return one line: the figure, the bound, met or not."""
    return f"goal {check.goal}: {check.what}: {_figure(check)} ({_bound(check)}): {_met(check)}"


def table(checks: Iterable[Check]) -> Table:
    """Return every check, in the order of the goals, and the goals that they are about."""
    checks = sorted(checks, key=lambda check: check.goal)
    rows = tuple((str(check.goal), check.what, _figure(check), _bound(check), _met(check)) for check in checks)
    spoken_of = {check.goal for check in checks}
    note = "\n".join(f"{goal}. {text}" for goal, text in TEXTS.items() if goal in spoken_of)
    return Table("Goals", ("goal", "figure", "measured", "wanted", "met"), rows, note)


def beside(figures: Iterable[Figure]) -> Table:
    """Return the figures that no goal is about."""
    rows = tuple((figure.what, f"{number(figure.value)}{figure.unit}") for figure in figures)
    return Table("Beside the goals", ("figure", "measured"), rows)


def _figure(check: Check) -> str:
    return f"{number(check.value)}{check.unit}"


def _bound(check: Check) -> str:
    return f"{'>=' if check.at_least else '<='} {number(check.bound)}{check.unit}"


def _met(check: Check) -> str:
    return "met" if check.met else "NOT MET"
