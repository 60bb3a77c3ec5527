"""How much of the disk a finished task takes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.contestants import Contestant, tasks_of
from benchmarks.floors import BareFloor
from benchmarks.measures.noop import turn
from benchmarks.ours import DEFAULT
from benchmarks.outcome import Outcome, Table, number
from benchmarks.peers.base import Peer
from benchmarks.scale import Scale

NOTE = (
    "Growth of the database file for each no-op task, enqueued and done, its log written back. Fleet keeps who did it, "
    "when, and its result, for seven days; what the others keep is in the last column. Nobody deletes within the run "
    "but flatmachines, whose file keeps the room."
)
KEPT = {
    "huey": "the result, under the task's id",
    "litequeue": "the message and three times",
    "persist-queue": "the item and its time",
    "flatmachines": "nothing",
}


def measure(scale: Scale, peers: Sequence[Peer]) -> Outcome:
    """Compare all of them."""
    contestants: tuple[Contestant, ...] = (DEFAULT, BareFloor(), *peers)
    rows = []
    for one in contestants:
        found = turn(one, scale.tasks, scale.compared, 0.0)
        kept = KEPT.get(getattr(one, "package", ""), "the row and its result")
        rows.append((one.name, f"{tasks_of(one, scale.tasks):,}", number(found.bytes_per_task), kept))
    return Outcome(
        (Table("Growth of the database", ("contestant", "tasks", "bytes a task", "kept"), tuple(rows), NOTE),)
    )
