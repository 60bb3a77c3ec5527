"""Fleet: a worker fleet with nothing but a database between its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import (
    ConflictError,
    DatabaseBusy,
    DatabaseError,
    DatabaseMissing,
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
    from fleet.domain.retry import RetryPolicy as RetryPolicy
    from fleet.handle import TaskHandle as TaskHandle
    from fleet.task import Task as Task
    from fleet.worker.context import Context as Context

__version__ = "0.1.0"

# Imported when first used (PEP 562), so that `import fleet` costs nothing to speak of.
_LAZY = {
    "Fleet": "fleet.app",
    "RetryPolicy": "fleet.domain.retry",
    "TaskHandle": "fleet.handle",
    "Task": "fleet.task",
    "Context": "fleet.worker.context",
}

__all__ = [
    "Context",
    "Fleet",
    "RetryPolicy",
    "Task",
    "TaskHandle",
    "FleetError",
    "ConflictError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseMissing",
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
