"""From the commit of an enqueue to the start of the handler, on an idle fleet."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import idle_fleet
from benchmarks.compare import percentile
from benchmarks.outcome import Check, Figure, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.scale import Scale

POLLED = "benchmarks.without_inotify"
FEW = 20
NOTE = (
    "Milliseconds from the return of the enqueueing call, after its commit, to the first line of the handler; "
    "{workers} idle workers; single tasks after a silence, and bursts of as many tasks as workers. huey polls, with "
    "its default delays (0.1 s growing to 10 s); the other peers have no workers of their own that wait."
)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure Fleet with and without inotify, and huey."""
    workers = scale.idle_workers
    kinds = (
        ("alone", scale.alone, 1, 0.05),
        ("burst", scale.bursts, workers, 0.2),
    )
    found: dict[tuple[str, str], list[float]] = {}
    for name, module in (("Fleet", "fleet.cli.worker"), ("Fleet without inotify", POLLED)):
        with idle_fleet.fleet(workers, module) as idle:
            first = 0
            for kind, times, together, gap in kinds:
                found[name, kind] = idle.latencies(first, times, together, gap)
                first += times * together
    if any(peer.package == "huey" for peer in peers):
        with idle_fleet.huey(workers) as idle:
            found["huey", "alone"] = idle.latencies(0, min(FEW, scale.alone), 1, 0.5)
    rows = tuple((name, kind, str(len(values)), *_figures(values)) for (name, kind), values in found.items())
    columns = ("who", "tasks", "n", "p50 ms", "p99 ms", "max ms")
    title = f"Latency on an idle fleet of {workers}"
    polled = found["Fleet without inotify", "burst"]
    figures = tuple(
        Figure(f"latency, Fleet without inotify, burst, p{share * 100:g}", percentile(polled, share), " ms")
        for share in (0.5, 0.99)
    )
    table = Table(title, columns, rows, NOTE.format(workers=workers))
    return Outcome((table,), tuple(_checks(found)), figures=figures)


def _figures(values: list[float]) -> tuple[str, str, str]:
    return number(percentile(values, 0.5)), number(percentile(values, 0.99)), number(max(values))


def _checks(found: dict[tuple[str, str], list[float]]) -> list[Check]:
    bounds = (
        ("Fleet", "alone", 0.5, 2.0),
        ("Fleet", "alone", 0.99, 10.0),
        ("Fleet", "burst", 0.5, 2.0),
        ("Fleet", "burst", 0.99, 10.0),
        ("Fleet without inotify", "alone", 0.5, 5.0),
    )
    return [
        Check(
            3,
            f"latency, {name}, {kind}, p{share * 100:g}",
            percentile(found[name, kind], share),
            bound,
            at_least=False,
            unit=" ms",
        )
        for name, kind, share, bound in bounds
    ]
