"""Reading what an explanation is made from; nothing is written."""

from __future__ import annotations

from fleet.domain.reasons import Reason
from fleet.domain.task import TaskRecord, TaskStatus
from fleet.domain.worker import WorkerFilter
from fleet.monitoring.observe import observe
from fleet.monitoring.sight import Sight
from fleet.monitoring.why_scaling import ScalingView, explain_scaling
from fleet.monitoring.why_task import Circumstances, explain_task
from fleet.monitoring.why_workers import PoolPart, part_of, settings_to_look_with
from fleet.storage.interfaces import LimitUse, ProvenDead, ScalerPass, Storage

_EVERY_KEY = 100_000


def scaling_view(storage: Storage, pool: ScalerPass, adapter_id: str, proven_dead: ProvenDead) -> ScalingView:
    """Return why a pool has the workers that it has.

    Args:
        storage: the database.
        pool: the pool, as stored.
        adapter_id: the native adapter of this host.
        proven_dead: says whether a process is certainly gone.
    """
    snapshot = storage.control.snapshot(pool.pool, pool.settings, adapter_id, proven_dead)
    last = next(iter(storage.control.decisions(pool.pool, limit=1)), None)
    return explain_scaling(snapshot, last, storage.control.groups(pool.pool))


def task_reasons(
    storage: Storage, task: TaskRecord, adapter_id: str, proven_dead: ProvenDead, moving: ProvenDead
) -> tuple[Reason, ...]:
    """Return why a task is as it is.

    Args:
        storage: the database.
        task: the task.
        adapter_id: the native adapter of this host.
        proven_dead: says whether a process is certainly gone.
        moving: says whether a process is certainly there, and not stopped.
    """
    sight = observe(storage, proven_dead, moving=moving)
    known = Circumstances(
        sight,
        storage.queue.parents(task.task_id) if task.status is TaskStatus.BLOCKED else (),
        _use(storage, task),
        bool(sight.workers) or bool(storage.registry.list(WorkerFilter(measured=False))),
        _pools(storage, task, sight, adapter_id, proven_dead),
    )
    return explain_task(task, known)


def _use(storage: Storage, task: TaskRecord) -> LimitUse | None:
    if task.concurrency_key is None:
        return None
    return next((one for one in storage.rules.limit_use(_EVERY_KEY) if one.key == task.concurrency_key), None)


def _pools(
    storage: Storage, task: TaskRecord, sight: Sight, adapter_id: str, proven_dead: ProvenDead
) -> tuple[PoolPart, ...]:
    if task.status is not TaskStatus.PENDING:
        return ()
    parts = []
    for name, settings in sorted(sight.pools.items()):
        snapshot = storage.control.snapshot(name, settings_to_look_with(settings), adapter_id, proven_dead)
        parts.append(part_of(task, sight, settings, snapshot))
    return tuple(parts)
