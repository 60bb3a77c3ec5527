"""How a worker is doing, spelled out: rows alone lie, since a killed worker's row still says `active`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from fleet.domain.liveness import Gap, Life, is_lost
from fleet.domain.worker import WorkerRecord, WorkerStatus

BEATS_UNTIL_LATE = 2


class WorkerState(StrEnum):
    """How a worker is doing, in the words of the view `fleet_workers`, and `late`.

    Ready, busy, paused, draining and quarantined ones are live; on a quarantined one tasks fail that succeed elsewhere,
    and it claims nothing. A late one has missed beats and is within its lease, or past it while its process is seen to
    be there. A dead one is past its lease, or its process is certainly gone, and nobody
    has marked it yet; a lost one was marked, and its tasks given back; a terminated one has ended by itself.
    """

    READY = "ready"
    BUSY = "busy"
    PAUSED = "paused"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    LATE = "late"
    DEAD = "dead"
    LOST = "lost"
    TERMINATED = "terminated"


LIVE_STATES = (WorkerState.READY, WorkerState.BUSY, WorkerState.PAUSED, WorkerState.DRAINING, WorkerState.QUARANTINED)
CLAIMING_STATES = (WorkerState.READY, WorkerState.BUSY)


def state_of(
    worker: WorkerRecord,
    now: datetime,
    gap: Gap | None,
    proven_dead: bool,
    moving: bool = False,
    quarantined: bool = False,
) -> WorkerState:
    """Return how a worker is doing.

    Args:
        worker: its row.
        now: the database's time.
        gap: the last gap between maintenance passes.
        proven_dead: whether its process is certainly gone.
        moving: whether its process is certainly there: its beats may wait for somebody's lock.
        quarantined: whether it, or its host, is in quarantine.
    """
    if worker.status in (WorkerStatus.TERMINATED, WorkerStatus.LOST):
        return WorkerState(worker.status.value)
    life = Life.DEAD if proven_dead else Life.UNKNOWN
    if is_lost(life, worker.lease_expires_at, worker.lease_seconds, now, gap):
        return WorkerState.LATE if moving else WorkerState.DEAD
    if (now - worker.last_heartbeat).total_seconds() > BEATS_UNTIL_LATE * worker.heartbeat_seconds:
        return WorkerState.LATE
    if worker.status is WorkerStatus.TERMINATING:
        return WorkerState.DRAINING
    if quarantined:
        return WorkerState.QUARANTINED
    if worker.paused:
        return WorkerState.PAUSED
    return WorkerState.READY if worker.current_task_id is None else WorkerState.BUSY
