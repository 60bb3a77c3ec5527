"""A rehearsal of what workers do, on a database in memory that is gone afterwards.

A process that forks workers does it once before: what is imported, compiled and specialised then is shared by all of
them, where each would otherwise do it alone, and in memory of its own.
"""

from __future__ import annotations

from fleet.clock import SystemClock
from fleet.config import Location
from fleet.domain.execution import Claimant, Finish
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import HandlerDefaults, NewTask, TaskStatus
from fleet.domain.worker import Beat, WorkerRegistration
from fleet.storage.store import SqlStorage

ROUNDS = 20
"""Calls after which the interpreter has specialised the code, and some more."""


def rehearse() -> None:
    """Register, enqueue, claim, record, beat and end, again and again, in a SQLite database in memory."""
    memory = Location("sqlite://", None, True, ":memory:")
    storage = SqlStorage.open(memory, create=True, adopt=False, read_only=False, clock=SystemClock())
    try:
        for number in range(ROUNDS):
            _round(storage, f"rehearsal-{number}")
    finally:
        storage.close()


def _round(storage: SqlStorage, worker: str) -> None:
    queue, registry = storage.queue, storage.registry
    registry.register(
        WorkerRegistration(worker, worker, "default", ProcessIdentity(), heartbeat_seconds=5.0, lease_seconds=20.0),
        lambda _process: False,
    )
    queue.declare_handlers([HandlerDefaults("rehearsal")])
    queue.enqueue([NewTask("rehearsal")] * 3)
    lanes = tuple((lane.lane_id, 0, 0) for lane in queue.lanes(0))
    who = Claimant(worker, worker, 20.0)
    tasks = queue.claim(who, lanes, 1).tasks
    while tasks:
        finishes = [Finish(task.fence, TaskStatus.DONE) for task in tasks]
        tasks = queue.finish_and_claim(who, finishes, lanes, 1).tasks
    queue.claim(who, lanes, 1)
    registry.beat([Beat(worker, worker)])
    registry.verify(worker, worker)
    registry.end(worker, worker, reason="rehearsed")
