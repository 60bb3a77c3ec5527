"""Adapters in SQL: who stands for an id, what was refused, who is paused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fleet.domain.adapters import (
    BREAKER,
    CAPACITY_EXCEEDED,
    FULL_FOR,
    MOST_PRIORITY,
    NATIVE,
    AdapterRecord,
    AdapterStatus,
    Limits,
    NewAdapter,
    Tenure,
)
from fleet.domain.group import adapter_backoff
from fleet.domain.jsontext import printable
from fleet.domain.metrics import number
from fleet.errors import ConflictError
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.rows import PROCESS, dumps, process_of, process_values, quantities, whole
from fleet.storage.sql import Row, Statement, as_time

_COLUMNS = f"""adapter_id, kind, {PROCESS}, epoch, max_worker_groups, workers_per_group, base_capabilities_json,
    priority, resizes, last_heartbeat, lease_seconds, lease_expires_at, status, reason, backoff_until,
    consecutive_failures, on_request_json"""
_GET_TEXT = f"SELECT {_COLUMNS} FROM worker_adapter WHERE adapter_id = :adapter_id"
_GET = Statement(_GET_TEXT)
_GET_LOCKED = Statement(_GET_TEXT, f"{_GET_TEXT} FOR UPDATE")
_ALL = Statement(f"SELECT {_COLUMNS} FROM worker_adapter ORDER BY priority DESC, adapter_id")
_KNOW = Statement(
    """INSERT INTO worker_adapter (adapter_id, kind, host) VALUES (:adapter_id, :kind, :host)
    ON CONFLICT (adapter_id) DO NOTHING"""
)
_STAND = Statement(
    """UPDATE worker_adapter SET kind = :kind, host = :host, boot_id = :boot_id, pid_namespace = :pid_namespace,
        pid = :pid, pid_start_ticks = :pid_start_ticks, epoch = epoch + 1, max_worker_groups = :groups,
        workers_per_group = :workers, base_capabilities_json = :capabilities, on_request_json = :on_request,
        priority = :priority, resizes = :resizes, last_heartbeat = :now, lease_seconds = :lease,
        lease_expires_at = :expires
    WHERE adapter_id = :adapter_id RETURNING epoch"""
)
_BEAT = Statement(
    """UPDATE worker_adapter SET max_worker_groups = :groups, workers_per_group = :workers,
        base_capabilities_json = :capabilities, on_request_json = :on_request, last_heartbeat = :now,
        lease_expires_at = :expires,
        pid = :pid, pid_start_ticks = :pid_start_ticks,
        reason = CASE WHEN status = 'active' THEN :trouble ELSE reason END
    WHERE adapter_id = :adapter_id AND epoch = :epoch"""
)
_REST = Statement(
    """UPDATE worker_adapter SET last_heartbeat = :now, lease_expires_at = :expires, pid_start_ticks = NULL
    WHERE adapter_id = :adapter_id AND epoch = :epoch"""
)
_LOSE = Statement(
    """UPDATE worker_adapter SET lease_expires_at = NULL
    WHERE adapter_id = :adapter_id AND epoch = :epoch AND last_heartbeat = :last_heartbeat
        AND lease_expires_at IS NOT NULL"""
)
_LEAVE = Statement(
    """UPDATE worker_adapter SET lease_expires_at = NULL, pid = NULL, pid_start_ticks = NULL
    WHERE adapter_id = :adapter_id AND epoch = :epoch"""
)
_SUCCEEDED = Statement(
    """UPDATE worker_adapter SET consecutive_failures = 0, backoff_until = NULL
    WHERE adapter_id = :adapter_id AND (consecutive_failures > 0 OR backoff_until IS NOT NULL)"""
)
_REFUSED = Statement(
    """UPDATE worker_adapter SET consecutive_failures = :failures, backoff_until = :until
    WHERE adapter_id = :adapter_id"""
)
_SET_STATUS = Statement(
    """UPDATE worker_adapter SET status = :status, reason = :reason,
        backoff_until = CASE WHEN :status = 'active' THEN NULL ELSE backoff_until END,
        consecutive_failures = CASE WHEN :status = 'active' THEN 0 ELSE consecutive_failures END
    WHERE adapter_id = :adapter_id AND status <> :status"""
)


class SqlAdapters:
    """`Adapters` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stand(self, adapter: NewAdapter) -> Tenure:
        """Begin to stand for an id; whoever did so before does no more."""
        return self._database.write(lambda transaction: _stand(transaction, adapter))

    def beat(self, tenure: Tenure, limits: Limits, trouble: str | None = None) -> AdapterRecord | None:
        """Say that the adapter is there, and what it can take; None when another process stands for the id."""
        return self._database.write(lambda transaction: _beat(transaction, tenure, limits, trouble))

    def leave(self, tenure: Tenure) -> bool:
        """Stand for the id no more; False when another process did already."""
        return self._database.write(lambda transaction: _leave(transaction, tenure))

    def rest(self, tenure: Tenure) -> bool:
        """Go, and be believed for a lease without a process; False when another process stands for the id."""
        return self._database.write(lambda transaction: _rest(transaction, tenure))

    def pause(self, adapter_id: str, reason: str) -> bool:
        """Order nothing more from an adapter; False when that was so already."""
        return self._database.write(lambda transaction: _pause(transaction, adapter_id, reason), durable=True)

    def resume(self, adapter_id: str) -> bool:
        """Order from an adapter again, its failures forgotten; False when nobody kept from it."""
        return self._database.write(
            lambda transaction: set_status(transaction, adapter_id, AdapterStatus.ACTIVE, None), durable=True
        )

    def get(self, adapter_id: str) -> AdapterRecord | None:
        """Return one adapter."""
        return self._database.read(lambda transaction: get(transaction, adapter_id))

    def list(self) -> tuple[AdapterRecord, ...]:
        """Return all adapters, those of high priority first."""
        return self._database.read(all_adapters)


def get(transaction: Transaction, adapter_id: str, *, locked: bool = False) -> AdapterRecord | None:
    """Return one adapter; locked, it stays as it is until the transaction ends."""
    row = transaction.record(_GET_LOCKED if locked else _GET, adapter_id=adapter_id)
    return _adapter_of(row) if row else None


def all_adapters(transaction: Transaction) -> tuple[AdapterRecord, ...]:
    """Return all adapters, those of high priority first."""
    return tuple(_adapter_of(row) for row in transaction.records(_ALL))


def lose(transaction: Transaction, adapter: AdapterRecord) -> bool:
    """Note, with an event, that an adapter is lost; False when it has beaten since, or that is known already."""
    lost = transaction.touched(
        _LOSE, adapter_id=adapter.adapter_id, epoch=adapter.epoch, last_heartbeat=adapter.last_heartbeat
    )
    if lost:
        who = f"pid {adapter.process.pid} on {adapter.process.host}, epoch {adapter.epoch}"
        record_event(transaction, "adapter_lost", adapter.adapter_id, f"{who}: what it has not begun is left to others")
    return bool(lost)


def _stand(transaction: Transaction, adapter: NewAdapter) -> Tenure:
    known = transaction.record(_GET_LOCKED, adapter_id=adapter.adapter_id)
    if known is not None and known["epoch"] > 0 and known["kind"] != adapter.kind:
        raise ConflictError(
            f"adapter {adapter.adapter_id} is of kind {known['kind']}, not {adapter.kind}: choose another --adapter-id"
        )
    transaction.rows(_KNOW, adapter_id=adapter.adapter_id, kind=adapter.kind, host=adapter.process.host)
    epoch = transaction.value(
        _STAND,
        kind=adapter.kind,
        **process_values(adapter.process),
        **_limits(adapter.adapter_id, adapter.limits),
        resizes=adapter.resizes,
        priority=adapter.priority,
        now=transaction.now,
        lease=adapter.lease_seconds,
        expires=transaction.now + timedelta(seconds=adapter.lease_seconds),
    )
    record_event(
        transaction,
        "adapter_started",
        adapter.adapter_id,
        f"{adapter.kind}, pid {adapter.process.pid} on {adapter.process.host}, epoch {epoch}",
    )
    return Tenure(adapter.adapter_id, int(epoch), adapter.process)


def _limits(adapter_id: str, limits: Limits) -> dict[str, Any]:
    return {
        "adapter_id": adapter_id,
        "groups": limits.max_worker_groups,
        "workers": limits.workers_per_group,
        "capabilities": dumps(dict(limits.base_capabilities or {})),
        "on_request": dumps(dict(limits.on_request)) if limits.on_request else None,
    }


def _beat(transaction: Transaction, tenure: Tenure, limits: Limits, trouble: str | None) -> AdapterRecord | None:
    known = get(transaction, tenure.adapter_id)
    if known is None:
        return None
    expires = transaction.now + timedelta(seconds=known.lease_seconds)
    renewed = transaction.touched(
        _BEAT,
        **_limits(tenure.adapter_id, limits),
        epoch=tenure.epoch,
        now=transaction.now,
        expires=expires,
        pid=tenure.process.pid,
        pid_start_ticks=tenure.process.start_ticks,
        trouble=None if trouble is None else printable(trouble, 500),
    )
    return get(transaction, tenure.adapter_id) if renewed else None


def _rest(transaction: Transaction, tenure: Tenure) -> bool:
    known = get(transaction, tenure.adapter_id)
    if known is None:
        return False
    expires = transaction.now + timedelta(seconds=known.lease_seconds)
    values = {"adapter_id": tenure.adapter_id, "epoch": tenure.epoch}
    return bool(transaction.touched(_REST, **values, now=transaction.now, expires=expires))


def _leave(transaction: Transaction, tenure: Tenure) -> bool:
    left = transaction.touched(_LEAVE, adapter_id=tenure.adapter_id, epoch=tenure.epoch)
    if left:
        record_event(transaction, "adapter_stopped", tenure.adapter_id, f"epoch {tenure.epoch}")
    return bool(left)


def set_status(transaction: Transaction, adapter_id: str, status: AdapterStatus, reason: str | None) -> bool:
    """Pause or resume an adapter; return whether that changed anything."""
    changed = transaction.touched(_SET_STATUS, adapter_id=adapter_id, status=status, reason=reason)
    if changed:
        kind = "adapter_paused" if status is AdapterStatus.PAUSED else "adapter_resumed"
        record_event(transaction, kind, adapter_id, reason or "")
    return bool(changed)


def _pause(transaction: Transaction, adapter_id: str, reason: str) -> bool:
    # A host's own adapter can be kept from starting anything before it ever has.
    know(transaction, adapter_id)
    return set_status(transaction, adapter_id, AdapterStatus.PAUSED, reason)


def know(transaction: Transaction, adapter_id: str) -> None:
    """Make the row of a host's own adapter, for which no process stands, before anything is ordered from it.

    What it refuses is counted there, and it can be paused as any other.
    """
    kind, _, host = adapter_id.partition(":")
    if kind == NATIVE and get(transaction, adapter_id) is None:
        transaction.rows(_KNOW, adapter_id=adapter_id, kind=kind, host=host)


def succeeded(transaction: Transaction, adapter_id: str) -> None:
    """Forget what an adapter has refused: it has carried something out."""
    transaction.rows(_SUCCEEDED, adapter_id=adapter_id)


def refused(transaction: Transaction, adapter_id: str, error_code: int | None, message: str) -> None:
    """Note that an adapter could not carry out an order: it is left alone for a while, and after many, for good.

    That it has no room is no failure, nor is what the order itself asks for (codes below 500): those are its pool's.
    """
    known = get(transaction, adapter_id, locked=True)
    if known is None:
        return
    if error_code == CAPACITY_EXCEEDED:
        until = transaction.now + timedelta(seconds=FULL_FOR)
        transaction.rows(_REFUSED, adapter_id=adapter_id, failures=known.consecutive_failures, until=until)
    elif error_code is not None and error_code >= 500:
        failures = known.consecutive_failures + 1
        _count(transaction, adapter_id, failures, f"{failures} orders in a row failed, the last: {message}")


def fell_short(transaction: Transaction, adapter_id: str, times: int, message: str) -> None:
    """Note that a place did not give, so many times lately, what its adapter says that it does."""
    if get(transaction, adapter_id, locked=True) is not None:
        _count(transaction, adapter_id, times, f"{times} launches lately gave less than they asked for: {message}")


def _count(transaction: Transaction, adapter_id: str, failures: int, why: str) -> None:
    until = transaction.now + timedelta(seconds=adapter_backoff(failures))
    transaction.rows(_REFUSED, adapter_id=adapter_id, failures=failures, until=until)
    if failures >= BREAKER:
        set_status(transaction, adapter_id, AdapterStatus.PAUSED, printable(why, 500))


def _adapter_of(row: Row) -> AdapterRecord:
    return AdapterRecord(
        adapter_id=row["adapter_id"],
        kind=row["kind"],
        process=process_of(row),
        epoch=whole(row["epoch"]) or 0,
        limits=Limits(
            whole(row["max_worker_groups"]),
            whole(row["workers_per_group"], least=1),
            quantities(row["base_capabilities_json"]),
            quantities(row["on_request_json"]) or None,
        ),
        resizes=row["resizes"] is None or bool(row["resizes"]),
        priority=whole(row["priority"], least=-MOST_PRIORITY) or 0,
        last_heartbeat=as_time(row["last_heartbeat"]),
        lease_seconds=number(row["lease_seconds"]) or 0.0,
        lease_expires_at=as_time(row["lease_expires_at"]),
        status=AdapterStatus(row["status"]),
        reason=row["reason"],
        backoff_until=as_time(row["backoff_until"]),
        consecutive_failures=whole(row["consecutive_failures"]) or 0,
    )
