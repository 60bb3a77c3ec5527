"""The tables. Names and meanings are a public contract: `sqlite3` and programs in other languages read them.

Every status, time and JSON column has a CHECK; every constraint has a name, so that a later migration can change it.
There is no foreign key from task to worker (it would stop the pruning of workers), no CASCADE, and no uniqueness over
pid or host.
"""

from __future__ import annotations

from fleet.storage.tables.columns import metadata
from fleet.storage.tables.fleet import fleet_event, fleet_meta, maintenance, work_minute
from fleet.storage.tables.health import quarantine, worker_command
from fleet.storage.tables.queue import DEDUPE_OPEN, claim_lane, work_payload, work_queue
from fleet.storage.tables.registry import worker_registry
from fleet.storage.tables.rules import (
    limit_setting,
    limit_state,
    queue_setting,
    task_handler,
    work_schedule,
    work_schedule_tick,
)
from fleet.storage.tables.scaling import adapter_command, scaling_decision, scheduler, worker_adapter, worker_group
from fleet.storage.tables.tasks import work_attempt, work_batch, work_dependency, work_release, work_step

__all__ = [
    "DEDUPE_OPEN",
    "adapter_command",
    "claim_lane",
    "fleet_event",
    "fleet_meta",
    "limit_setting",
    "limit_state",
    "maintenance",
    "metadata",
    "quarantine",
    "queue_setting",
    "scaling_decision",
    "scheduler",
    "task_handler",
    "work_attempt",
    "work_batch",
    "work_dependency",
    "work_minute",
    "work_payload",
    "work_queue",
    "work_release",
    "work_schedule",
    "work_schedule_tick",
    "work_step",
    "worker_adapter",
    "worker_command",
    "worker_group",
    "worker_registry",
]
