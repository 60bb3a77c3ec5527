"""Fleet: a worker fleet with nothing but a database between its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import (
    ConflictError,
    DatabaseBusy,
    DatabaseError,
    DatabaseForbidden,
    DatabaseMissing,
    DatabaseSealed,
    FleetError,
    IllegalTransition,
    NotFound,
    PayloadError,
    SchemaMismatch,
    TaskFailed,
    UsageError,
    WaitTimeout,
    WorkerIdTaken,
)

if TYPE_CHECKING:
    from fleet.app import Fleet as Fleet
    from fleet.batches import Batch as Batch
    from fleet.batches import BatchHandle as BatchHandle
    from fleet.domain.retry import RetryPolicy as RetryPolicy
    from fleet.domain.signals import Cancel as Cancel
    from fleet.domain.signals import Fail as Fail
    from fleet.domain.signals import Retry as Retry
    from fleet.domain.signals import Snooze as Snooze
    from fleet.domain.signals import Stopped as Stopped
    from fleet.handle import TaskHandle as TaskHandle
    from fleet.task import Task as Task
    from fleet.worker.context import Context as Context

__version__ = "0.1.0"

# Imported when first used (PEP 562), so that `import fleet` costs nothing to speak of.
_LAZY = {
    "Fleet": "fleet.app",
    "Batch": "fleet.batches",
    "BatchHandle": "fleet.batches",
    "RetryPolicy": "fleet.domain.retry",
    "Cancel": "fleet.domain.signals",
    "Fail": "fleet.domain.signals",
    "Retry": "fleet.domain.signals",
    "Snooze": "fleet.domain.signals",
    "Stopped": "fleet.domain.signals",
    "TaskHandle": "fleet.handle",
    "Task": "fleet.task",
    "Context": "fleet.worker.context",
}

__all__ = [
    "Batch",
    "BatchHandle",
    "Context",
    "Fleet",
    "RetryPolicy",
    "Task",
    "TaskHandle",
    "Cancel",
    "Fail",
    "Retry",
    "Snooze",
    "Stopped",
    "FleetError",
    "ConflictError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseForbidden",
    "DatabaseMissing",
    "DatabaseSealed",
    "IllegalTransition",
    "NotFound",
    "PayloadError",
    "SchemaMismatch",
    "TaskFailed",
    "UsageError",
    "WaitTimeout",
    "WorkerIdTaken",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'fleet' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
