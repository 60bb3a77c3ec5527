"""Workers, tasks and processes as the storage tests need them, with few words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from fleet.domain.execution import Claimant, ClaimedTask, Failure, Finish, done, failed
from fleet.domain.lanes import LaneClaim
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.task import Enqueued, NewTask, TaskRecord
from fleet.domain.worker import Beat, WorkerRecord, WorkerRegistration
from fleet.storage.interfaces import Holder, ProvenDead, Storage

HEARTBEAT = 5.0
LEASE = 20.0

Lanes = Sequence[LaneClaim]
Traced = tuple[Storage, list[str]]


def process(pid: int = 100) -> ProcessIdentity:
    """Return the identity of a process of a host that is not this one."""
    return ProcessIdentity("host-a", "boot-a", "pid:[1]", pid, pid * 7)


def nobody(identity: ProcessIdentity) -> bool:
    """Prove nobody dead."""
    return False


def everybody(identity: ProcessIdentity) -> bool:
    """Prove everybody dead."""
    return True


def dead(*pids: int) -> ProvenDead:
    """Prove the processes of these pids dead."""
    return lambda identity: identity.pid in pids


def holder(name: str, pid: int) -> Holder:
    """Return a process that takes a short lease."""
    return Holder(name, process(pid))


def registration(worker_id: str = "w", **given: Any) -> WorkerRegistration:
    """Return what a fresh incarnation of `worker_id` with handler `t` says of itself."""
    sample = WorkerRegistration(
        worker_id=worker_id,
        incarnation=uuid4().hex,
        pool="default",
        process=process(),
        heartbeat_seconds=HEARTBEAT,
        lease_seconds=LEASE,
        handlers=("t",),
    )
    return replace(sample, **given)


def claimant_of(worker: WorkerRegistration | WorkerRecord) -> Claimant:
    """Return a worker as the one who claims."""
    return Claimant(worker.worker_id, worker.incarnation, worker.lease_seconds)


def join(store: Storage, worker_id: str = "w", **given: Any) -> Claimant:
    """Register a worker and return it as the one who claims."""
    return claimant_of(store.registry.register(registration(worker_id, **given), nobody))


def beat(store: Storage, who: Claimant, *held: ClaimedTask, **given: Any) -> Any:
    """Beat for one worker that holds `held`; return the reply."""
    pairs = tuple((task.task_id, task.claim_token) for task in held)
    [reply] = store.registry.beat([Beat(who.worker_id, who.incarnation, pairs, idle=not held, **given)])
    return reply


def enqueue(store: Storage, *tasks: NewTask) -> Enqueued:
    """Enqueue tasks."""
    return store.queue.enqueue(tasks)


def enqueue_one(store: Storage, **given: Any) -> int:
    """Enqueue one task of handler `t` and return its id."""
    [task_id] = store.queue.enqueue([NewTask(**{"task": "t", **given})]).ids
    return task_id


def all_lanes(store: Storage) -> Lanes:
    """Return every lane, all in one tier."""
    return tuple((lane.lane_id, 0, 0) for lane in store.queue.lanes())


def claim(store: Storage, who: Claimant, limit: int = 1, lanes: Lanes | None = None) -> tuple[ClaimedTask, ...]:
    """Claim from all lanes, or from these."""
    return store.queue.claim(who, all_lanes(store) if lanes is None else lanes, limit).tasks


def claim_one(store: Storage, who: Claimant) -> ClaimedTask:
    """Claim one task, which must be there."""
    [task] = claim(store, who)
    return task


def running_task(store: Storage, worker_id: str = "w", **given: Any) -> tuple[Claimant, ClaimedTask]:
    """Enqueue a task, register a worker and let it claim the task."""
    who = join(store, worker_id)
    enqueue_one(store, **given)
    return who, claim_one(store, who)


def batch(store: Storage, who: Claimant, size: int) -> tuple[ClaimedTask, ...]:
    """Enqueue `size` fresh tasks and claim them in one batch."""
    enqueue(store, *[NewTask("t")] * size)
    tasks = claim(store, who, size)
    assert len(tasks) == size
    return tasks


def success(task: ClaimedTask, result_json: str | None = "1") -> Finish:
    """Return that `task` was done."""
    return done(task, result_json, 0.5, 0.5)


def failure(task: ClaimedTask, *, final: bool = False) -> Finish:
    """Return that `task` failed; it is tried again while attempts remain, unless `final`."""
    return failed(task, Failure("ValueError", "it broke", "Traceback ...", final), 0.5, 0.5, lambda: 0.5)


def finish(store: Storage, who: Claimant, *finishes: Finish) -> int:
    """Write how tasks ended, claim nothing, and return how many were accepted."""
    return len(store.queue.finish_and_claim(who, finishes, (), 0).accepted)


def row(store: Storage, task_id: int) -> TaskRecord:
    """Return a task, which must be there."""
    record = store.queue.get(task_id)
    assert record is not None
    return record


def statuses(store: Storage, task_ids: Sequence[int]) -> list[str]:
    """Return the statuses of these tasks."""
    return [str(row(store, task_id).status) for task_id in task_ids]


def execute(store: Storage, statement: str, **parameters: Any) -> list[Mapping[str, Any]]:
    """Execute plain SQL in a transaction of its own; return the rows, if there are any."""
    with store.transaction() as transaction:
        result = transaction.connection.execute(text(statement), parameters)
        return [dict(each) for each in result.mappings()] if result.returns_rows else []
