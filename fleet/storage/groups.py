"""Worker groups in SQL: from a request to a live supervisor and to its end."""

from __future__ import annotations

from datetime import datetime, timedelta

from fleet.domain.allocation import allocation_of
from fleet.domain.group import GroupOrders, GroupRecord, GroupStatus, NewGroup
from fleet.domain.group import is_gone as judged_gone
from fleet.domain.jsontext import printable
from fleet.domain.lanes import named
from fleet.domain.liveness import Gap, ProcessIdentity
from fleet.domain.placement import StartGroup
from fleet.storage.database import Transaction
from fleet.storage.draining import drain
from fleet.storage.events import record_event
from fleet.storage.interfaces import ProvenDead
from fleet.storage.rows import GROUP_COLUMNS, dumps, group_of, loads, process_values
from fleet.storage.sql import Statement

_OPEN = "status NOT IN ('stopped', 'failed')"
_GET = Statement(f"SELECT {GROUP_COLUMNS} FROM worker_group WHERE group_id = :group_id")
_LIVE = Statement(
    f"SELECT {GROUP_COLUMNS} FROM worker_group WHERE pool = :pool AND {_OPEN} ORDER BY created_at, group_id"
)
_ALL_LIVE = Statement(f"SELECT {GROUP_COLUMNS} FROM worker_group WHERE {_OPEN} ORDER BY created_at, group_id")
_ALL = Statement(
    f"""SELECT {GROUP_COLUMNS} FROM worker_group WHERE CAST(:pool AS TEXT) IS NULL OR pool = :pool
    ORDER BY created_at DESC, group_id"""
)
_REQUEST = Statement(
    """INSERT INTO worker_group (group_id, pool, adapter_id, capabilities_json, target_size, status, launch_token,
        created_at, boot_deadline_at, decision_id)
    VALUES (:group_id, :pool, :adapter_id, :capabilities, :size, 'requested', :token, :now, :deadline, :decision_id)"""
)
_ADD = Statement(
    """INSERT INTO worker_group (group_id, pool, capabilities_json, target_size, status, launch_token, host, boot_id,
        pid_namespace, pid, pid_start_ticks, created_at, contacted_at, last_heartbeat, lease_seconds, lease_expires_at,
        log_path)
    VALUES (:group_id, :pool, :capabilities, :size, 'running', :token, :host, :boot_id, :pid_namespace, :pid,
        :pid_start_ticks, :now, :now, :now, :lease, :expires, :log_path)"""
)
_LAUNCHING = Statement(
    """UPDATE worker_group SET status = 'launching', host = :host, boot_id = :boot_id, pid_namespace = :pid_namespace,
        pid = :pid, pid_start_ticks = :pid_start_ticks, log_path = :log_path, reference = :reference
    WHERE group_id = :group_id AND launch_token = :token AND status IN ('requested', 'launching')"""
)
_REFERENCE = Statement(
    """UPDATE worker_group SET reference = coalesce(:reference, reference), log_path = coalesce(:log_path, log_path)
    WHERE group_id = :group_id AND launch_token = :token"""
)
_CONTACT = Statement(
    """UPDATE worker_group SET status = 'running', host = :host, boot_id = :boot_id, pid_namespace = :pid_namespace,
        pid = :pid, pid_start_ticks = :pid_start_ticks, contacted_at = :now, last_heartbeat = :now,
        lease_seconds = :lease, lease_expires_at = :expires, error = NULL
    WHERE group_id = :group_id AND launch_token = :token
        AND (status IN ('requested', 'launching')
            OR (status = 'running' AND pid = :pid AND boot_id = :boot_id AND pid_start_ticks = :pid_start_ticks))"""
)
_BEAT = Statement(
    f"""UPDATE worker_group SET last_heartbeat = :now, lease_expires_at = :expires
    WHERE group_id = :group_id AND pid = :pid AND pid_start_ticks = :pid_start_ticks AND {_OPEN}"""
)
_FAIL = Statement(
    f"""UPDATE worker_group SET status = 'failed', stopped_at = :now, error = :error, exit_code = :exit_code
    WHERE group_id = :group_id AND {_OPEN} AND (CAST(:token AS TEXT) IS NULL
        OR (launch_token = :token AND status IN ('requested', 'launching')))"""
)
_EXPLAIN = Statement(
    """UPDATE worker_group SET error = :error, exit_code = coalesce(:exit_code, exit_code)
    WHERE group_id = :group_id AND status = 'failed'""",
    """UPDATE worker_group SET error = :error, exit_code = coalesce(CAST(:exit_code AS int), exit_code)
    WHERE group_id = :group_id AND status = 'failed'""",
)
_STOP = Statement(
    f"UPDATE worker_group SET status = 'stopping', target_size = 0 WHERE group_id = :group_id AND {_OPEN}"
)
_END = Statement(
    f"""UPDATE worker_group SET status = 'stopped', stopped_at = :now, target_size = 0, exit_code = :exit_code
    WHERE group_id = :group_id AND {_OPEN}"""
)
_RESIZE = Statement("UPDATE worker_group SET target_size = :after WHERE group_id = :group_id AND target_size = :before")
_SETTINGS = Statement("SELECT settings_json FROM scheduler WHERE pool = :pool")
_MEMBERS = Statement(
    """SELECT worker_id, incarnation FROM worker_registry
    WHERE group_id = :group_id AND status = 'active' ORDER BY worker_id"""
)


def get(transaction: Transaction, group_id: str) -> GroupRecord | None:
    """Return one group."""
    row = transaction.record(_GET, group_id=group_id)
    return group_of(row) if row else None


def live(transaction: Transaction, pool: str | None) -> tuple[GroupRecord, ...]:
    """Return groups that have not ended, oldest first."""
    rows = transaction.records(_ALL_LIVE) if pool is None else transaction.records(_LIVE, pool=pool)
    return tuple(group_of(row) for row in rows)


def all_groups(transaction: Transaction, pool: str | None) -> tuple[GroupRecord, ...]:
    """Return groups, newest first."""
    return tuple(group_of(row) for row in transaction.records(_ALL, pool=pool))


def is_gone(group: GroupRecord, now: datetime, gap: Gap | None, proven_dead: ProvenDead) -> bool:
    """Return whether a group's launch or supervisor counts as gone; see `domain.group.is_gone`."""
    return judged_gone(group, now, gap, group.process.pid is not None and proven_dead(group.process))


def request(
    transaction: Transaction,
    group_id: str,
    pool: str,
    start: StartGroup,
    token: str,
    decision_id: int,
    boot_deadline: float,
) -> None:
    """Insert a group that a launch may become."""
    transaction.rows(
        _REQUEST,
        group_id=group_id,
        pool=pool,
        adapter_id=start.adapter_id,
        capabilities=dumps(dict(start.capabilities)),
        size=start.size,
        token=token,
        now=transaction.now,
        deadline=transaction.now + timedelta(seconds=boot_deadline),
        decision_id=decision_id,
    )
    asked = f", each with {named(start.capabilities)}" if start.capabilities else ""
    text = f"{start.size} workers of pool {pool} through {start.adapter_id}{asked}"
    record_event(transaction, "group_requested", group_id, text)


def add(transaction: Transaction, group: NewGroup) -> GroupOrders:
    """Insert a group that a person started."""
    transaction.rows(
        _ADD,
        group_id=group.group_id,
        pool=group.pool,
        capabilities=dumps(dict(group.capabilities)),
        size=group.target_size,
        token=group.launch_token,
        **process_values(group.process),
        now=transaction.now,
        lease=group.lease_seconds,
        expires=transaction.now + timedelta(seconds=group.lease_seconds),
        log_path=group.log_path,
    )
    record_event(transaction, "group_started", group.group_id, f"{group.target_size} workers of pool {group.pool}")
    return _orders(transaction, group.pool, GroupStatus.RUNNING, group.target_size)


def _orders(transaction: Transaction, pool: str, status: GroupStatus, size: int) -> GroupOrders:
    stored = loads(transaction.value(_SETTINGS, pool=pool))
    return GroupOrders(status, size, allocation_of(stored if isinstance(stored, dict) else {}))


def launching(
    transaction: Transaction,
    group_id: str,
    token: str,
    process: ProcessIdentity,
    log_path: str | None,
    reference: str | None,
) -> bool:
    """Note what a launch started."""
    values = {**process_values(process), "log_path": log_path, "reference": reference}
    return bool(transaction.touched(_LAUNCHING, group_id=group_id, token=token, **values))


def note_late(transaction: Transaction, group_id: str, token: str, log_path: str | None, reference: str | None) -> bool:
    """Note where a launch stands that its group waits for no more."""
    values = {"log_path": log_path, "reference": reference}
    return bool(transaction.touched(_REFERENCE, group_id=group_id, token=token, **values))


def contact(
    transaction: Transaction, group_id: str, token: str, process: ProcessIdentity, lease: float
) -> GroupOrders | None:
    """Turn a launch into a running group, if the token is still wanted."""
    now = transaction.now
    accepted = transaction.touched(
        _CONTACT,
        group_id=group_id,
        token=token,
        now=now,
        lease=lease,
        expires=now + timedelta(seconds=lease),
        **process_values(process),
    )
    found = get(transaction, group_id)
    if not accepted or found is None:
        return None
    record_event(transaction, "group_running", group_id, f"pid {process.pid} on {process.host}")
    return _orders(transaction, found.pool, found.status, found.target_size)


def beat(transaction: Transaction, group_id: str, process: ProcessIdentity) -> GroupOrders | None:
    """Renew a group's lease."""
    found = get(transaction, group_id)
    if found is None:
        return None
    expires = transaction.now + timedelta(seconds=found.lease_seconds)
    renewed = transaction.touched(
        _BEAT,
        group_id=group_id,
        now=transaction.now,
        expires=expires,
        pid=process.pid,
        pid_start_ticks=process.start_ticks,
    )
    return _orders(transaction, found.pool, found.status, found.target_size) if renewed else None


def fail(
    transaction: Transaction, group_id: str, error: str, exit_code: int | None = None, token: str | None = None
) -> bool:
    """Mark a group failed with its reason."""
    error = printable(error, 4_000)
    if not transaction.touched(
        _FAIL, group_id=group_id, now=transaction.now, error=error, exit_code=exit_code, token=token
    ):
        return False
    record_event(transaction, "group_failed", group_id, error)
    return True


def explain(transaction: Transaction, group_id: str, error: str, exit_code: int | None) -> bool:
    """Replace the reason of a failed group by a better one."""
    return bool(transaction.touched(_EXPLAIN, group_id=group_id, error=printable(error, 4_000), exit_code=exit_code))


def stop(transaction: Transaction, group_id: str, reason: str) -> bool:
    """Order a group to stop: no more workers, and those that are there drain."""
    if not transaction.touched(_STOP, group_id=group_id):
        return False
    for worker_id, incarnation in transaction.rows(_MEMBERS, group_id=group_id):
        drain(transaction, worker_id, incarnation, reason, None)
    record_event(transaction, "group_stopping", group_id, reason)
    return True


def end(transaction: Transaction, group_id: str, exit_code: int | None) -> bool:
    """Mark a group stopped."""
    ended = transaction.touched(_END, group_id=group_id, now=transaction.now, exit_code=exit_code)
    if ended:
        record_event(transaction, "group_stopped", group_id, "")
    return bool(ended)


def resize(transaction: Transaction, group_id: str, before: int, after: int) -> bool:
    """Change a group's target size if it is still what the plan saw."""
    if before == after:
        return False
    changed = transaction.touched(_RESIZE, group_id=group_id, before=before, after=after)
    if changed:
        record_event(transaction, "group_resized", group_id, f"{before} -> {after}")
    return bool(changed)
