"""How a worker comes into the registry: under a fresh incarnation, waiting out a predecessor that may be dead."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime

import fleet
from fleet import process
from fleet.clock import Clock
from fleet.domain.worker import WorkerRegistration
from fleet.errors import WorkerIdTaken
from fleet.storage.interfaces import Storage
from fleet.worker.metrics import facts
from fleet.worker.settings import WorkerSettings

_LOOK_AGAIN = 0.5
_log = logging.getLogger("fleet.worker")


def new_incarnation() -> str:
    """Return a fresh incarnation."""
    return uuid.uuid4().hex


def registration(settings: WorkerSettings, slot: int, incarnation: str, handlers: Iterable[str]) -> WorkerRegistration:
    """Return what the worker in `slot` says of itself."""
    return WorkerRegistration(
        worker_id=settings.worker_name(slot),
        incarnation=incarnation,
        pool=settings.pool,
        process=process.identify(),
        heartbeat_seconds=settings.heartbeat,
        lease_seconds=settings.lease,
        slots=settings.concurrency,
        group_id=settings.group_id,
        adapter_id=settings.adapter_id,
        capabilities=settings.capabilities,
        queues=tuple(name for name, _ in settings.queues),
        handlers=tuple(sorted(handlers)),
        version=fleet.__version__,
        log_path=settings.log_path,
        resources=facts(settings.max_memory_mb),
    )


def enrol(storage: Storage, new: WorkerRegistration, clock: Clock, waiting: Callable[[], bool]) -> bool:
    """Register; where the id is held by a worker whose death cannot be proven, wait for its lease to end.

    Args:
        storage: the store.
        new: the registration.
        clock: for the pauses.
        waiting: called before each pause; False gives up.

    Returns:
        False when `waiting` gave up.

    Raises:
        WorkerIdTaken: the holder of the id has beaten since, so it lives.
    """
    seen: datetime | None = None
    while True:
        try:
            storage.registry.register(new, process.is_dead)
            return True
        except WorkerIdTaken as taken:
            holder = storage.registry.get(new.worker_id)
            if holder is not None and seen is not None and holder.last_heartbeat > seen:
                raise
            if holder is not None and seen is None:
                _log.warning("%s; waiting for its lease of %.0f s to end", taken, holder.lease_seconds)
                seen = holder.last_heartbeat
        if not waiting():
            return False
        clock.sleep(_LOOK_AGAIN)
