"""The kit's own plain SQL: what an operator does in a shell, and no interface of Fleet offers."""

from __future__ import annotations

from sqlalchemy import text

from fleet.storage.interfaces import Storage

_PAUSE = text("UPDATE worker_registry SET paused = :paused WHERE worker_id = :worker")


def pause_worker(storage: Storage, worker_id: str, *, paused: bool) -> None:
    """Let a worker claim nothing, or claim again."""
    with storage.transaction() as transaction:
        transaction.connection.execute(_PAUSE, {"paused": paused, "worker": worker_id})
