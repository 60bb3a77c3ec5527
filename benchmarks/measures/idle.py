"""What a fleet costs while there is nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from benchmarks import idle_fleet
from benchmarks.compare import Series, in_turns
from benchmarks.measures.latency import POLLED
from benchmarks.outcome import Check, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import family_of
from benchmarks.scale import Scale

NOTE = (
    "CPU time of all processes of a group with {workers} idle workers over {seconds:g} s, in percent of one core, by "
    "the kernel's run time of each thread (the same as user and system time, in nanoseconds instead of ticks)."
)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure Fleet with and without inotify, and huey."""
    workers = scale.idle_workers
    groups: dict[str, Callable[[], AbstractContextManager[idle_fleet.Idle]]] = {
        "Fleet": partial(idle_fleet.fleet, workers),
        "Fleet without inotify": partial(idle_fleet.fleet, workers, POLLED),
    }
    if any(peer.package == "huey" for peer in peers):
        groups["huey"] = partial(idle_fleet.huey, workers)
    turns = {name: partial(percent, group, scale.idle_seconds) for name, group in groups.items()}
    found = {name: Series(tuple(values)) for name, values in in_turns(scale.few, turns).items()}
    rows = tuple((name, number(each.median), span(each)) for name, each in found.items())
    title = f"CPU of an idle fleet of {workers}"
    note = NOTE.format(workers=workers, seconds=scale.idle_seconds)
    checks = tuple(
        Check(3, f"CPU of {workers} idle workers, {name}", found[name].median, bound, at_least=False, unit=" %")
        for name, bound in (("Fleet", 1.0), ("Fleet without inotify", 3.0))
    )
    return Outcome((Table(title, ("who", "% of a core", "min–max"), rows, note),), checks)


def percent(group: Callable[[], AbstractContextManager[idle_fleet.Idle]], seconds: float) -> float:
    """Return how much of one core a group takes while nothing happens."""
    with group() as idle:
        before, began = run_time(idle.pid), time.monotonic()
        time.sleep(seconds)
        return (run_time(idle.pid) - before) / (time.monotonic() - began) * 100


def run_time(pid: int) -> float:
    """Return the seconds that a process and its descendants have spent on a CPU."""
    spent = 0
    for process in family_of(pid):
        for schedule in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                spent += int(schedule.read_text().split()[0])
    return spent / 1e9
