"""What use cases may ask of a store: facets of one database that share one transaction, because the rules span them.

Verbs are coarse and atomic: each is one transaction that either happened or did not. Zero rows is an answer (a returned
False, an empty tuple, `known=False`), not an exception. Every write about a claimed task names its fence (task id and
claim token) and the incarnation; a write whose claim is gone changes nothing.

Times in arguments and records are aware UTC datetimes. "Now" is the store's: SQLite reads the injected clock after the
write lock is held, PostgreSQL its server's clock (docs/ARCHITECTURE.md, Clocks and gaps).
"""

from __future__ import annotations

from fleet.storage.interfaces.adapters import Adapters
from fleet.storage.interfaces.control import (
    Applied,
    CarriedOut,
    ControlPlane,
    Holder,
    Judge,
    Judged,
    MaintenancePass,
    MinuteCount,
    ScalerPass,
    SettingsChange,
)
from fleet.storage.interfaces.health import HealthChange, HealthRecords, Part, WorkerOrders
from fleet.storage.interfaces.queue import NEWEST_TASKS, Ahead, WorkQueue
from fleet.storage.interfaces.registration import ALL_WORKERS, ProvenDead, RegistrationBackend
from fleet.storage.interfaces.rules import LimitUse, Pause, QueueRules
from fleet.storage.interfaces.schedules import Schedules
from fleet.storage.interfaces.store import OpenTransaction, Storage, Watch
from fleet.storage.interfaces.transaction import Transaction

__all__ = [
    "Transaction",
    "ALL_WORKERS",
    "ProvenDead",
    "RegistrationBackend",
    "HealthChange",
    "HealthRecords",
    "Part",
    "WorkerOrders",
    "NEWEST_TASKS",
    "Ahead",
    "WorkQueue",
    "Adapters",
    "Applied",
    "CarriedOut",
    "ControlPlane",
    "Holder",
    "Judge",
    "Judged",
    "MaintenancePass",
    "MinuteCount",
    "ScalerPass",
    "SettingsChange",
    "LimitUse",
    "Pause",
    "QueueRules",
    "OpenTransaction",
    "Schedules",
    "Storage",
    "Watch",
]
