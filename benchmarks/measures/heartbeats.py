"""What the heartbeats of many workers take of what the database can write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import registry
from benchmarks.compare import Series, in_turns
from benchmarks.outcome import Check, Figure, Outcome, Table, number, span
from benchmarks.peers.base import Peer
from benchmarks.processes import Invalid, elapsed, folder
from benchmarks.scale import Scale
from fleet.config import locate
from fleet.domain.worker import Beat
from fleet.storage.interfaces import Storage
from fleet.wiring import open_storage

EVERY = 10.0
METRICS = {"cpu_percent": 12.5, "rss_mb": 48.25, "load": [0.5, 0.4, 0.3], "memory_percent": 31.0}
NOTE = (
    "A keeper beats for its whole group in one transaction, metrics included. The time of all beats that fall within "
    "{every:g} s, one after another, as a share of those {every:g} s: while they are written nobody else writes."
)


def measure(scale: Scale, _peers: Sequence[Peer]) -> Outcome:
    """Measure groups of a hundred, and workers that are a group each."""
    workers = scale.beating
    sizes = (100, 10, 1)
    with folder() as place:
        storage = _registered(place / "fleet.db", workers)
        turns = {size: partial(_round, storage, workers, size) for size in sizes}
        in_turns(1, turns)  # what is prepared once is prepared
        found = {size: Series(tuple(each)) for size, each in in_turns(scale.runs, turns).items()}
        storage.close()
    per_thousand = 1_000 / workers
    shares = {size: Series(tuple(v * per_thousand / EVERY * 100 for v in each.values)) for size, each in found.items()}
    rows = tuple(
        (f"groups of {size}", number(found[size].median / workers * 1e6), number(each.median), span(each))
        for size, each in shares.items()
    )
    columns = ("1,000 workers in", "µs a worker", "% of the time", "min–max")
    checks = tuple(
        Check(6, f"heartbeats of 1,000 workers at 10 s, groups of {size}", shares[size].median, 2.0, False, " %")
        for size in sizes[:1]
    )
    figures = tuple(
        Figure(f"heartbeats of 1,000 workers at 10 s, groups of {size}", shares[size].median, " %")
        for size in sizes[1:]
    )
    return Outcome((Table("Heartbeats", columns, rows, NOTE.format(every=EVERY)),), checks, figures=figures)


def _registered(database: Path, workers: int) -> Storage:
    storage = open_storage(locate(str(database)), create=True)
    registry.register(storage, "worker-0")
    registry.multiply(database, "worker-0", (f"worker-{number}" for number in range(1, workers)))
    return storage


def _round(storage: Storage, workers: int, size: int) -> float:
    """Return the seconds in which each worker beats once."""
    names = [f"worker-{index}" for index in range(workers)]
    beats = [
        Beat(name, f"{name}-life", idle=False, tasks_done=index, metadata=METRICS) for index, name in enumerate(names)
    ]
    groups = [beats[start : start + size] for start in range(0, workers, size)]

    def beat() -> None:
        for group in groups:
            if not all(reply.known for reply in storage.registry.beat(group)):
                raise Invalid("a worker is not known")

    return elapsed(beat)
