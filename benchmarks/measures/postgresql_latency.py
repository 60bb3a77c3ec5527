"""From the commit of an enqueue to the start of the handler on PostgreSQL, where workers are idle."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.compare import percentile
from benchmarks.outcome import Check, Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.postgresql.contestants import Contestant
from benchmarks.postgresql.ours import DEFAULT
from benchmarks.postgresql.server import serving
from benchmarks.postgresql.turns import on_own_database, rivals
from benchmarks.processes import folder
from benchmarks.scale import Scale

ALONE = 200
GAP = 0.05
GOAL_MS = 5.0
NOTE = (
    "Milliseconds from the return of the enqueueing call, after its commit, in another process, to the first line of "
    "the handler; {workers} idle worker processes, which are told by LISTEN and NOTIFY; {tasks} tasks, each after a "
    "silence of 50 ms or so, in {runs} rounds, in each of which all had a turn. What workers commit does not wait for "
    "the disk; enqueues of Fleet do."
)


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Measure Fleet and its peers."""
    workers = min(scale.idle_workers, 4)
    everybody = (DEFAULT, *rivals(peers))
    tasks = max(1, min(ALONE, scale.alone) // scale.few)

    def turn(contestant: Contestant, url: str) -> list[float]:
        with folder() as place, contestant.idle(url, workers, place) as idle:
            return idle.latencies(0, tasks, 1, GAP)

    with serving() as server:
        turns = on_own_database(server, everybody, scale.few, False, turn)
    found = {name: [each for times in rounds for each in times] for name, rounds in turns.items()}
    rows = tuple(
        (name, str(len(times)), *(number(percentile(times, share)) for share in (0.5, 0.95, 0.99)), number(max(times)))
        for name, times in found.items()
    )
    note = NOTE.format(workers=workers, tasks=tasks * scale.few, runs=scale.few)
    columns = ("who", "n", "p50 ms", "p95 ms", "p99 ms", "max ms")
    title = f"Latency on PostgreSQL, an idle fleet of {workers}"
    middle = percentile(found[DEFAULT.name], 0.5)
    check = Check(10, "latency on PostgreSQL, Fleet, p50", middle, GOAL_MS, at_least=False, unit=" ms")
    return Outcome((Table(title, columns, rows, note),), (check,))
