"""Scaler passes in SQL: settings and lease of a pool, and the transaction that applies a plan."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from fleet.domain.group import BOOT_DEADLINE, CommandKind, Template
from fleet.domain.plan import Plan, StartGroup
from fleet.domain.policies.in_force import merged
from fleet.domain.snapshot import PoolSettings
from fleet.errors import UsageError
from fleet.storage import adapters, commands, decisions, groups
from fleet.storage.database import Transaction
from fleet.storage.draining import drain
from fleet.storage.events import record_event
from fleet.storage.interfaces import Applied, Holder, ProvenDead, ScalerPass, SettingsChange
from fleet.storage.rows import dumps, loads, mapping, process_from_json, process_json
from fleet.storage.sql import Row, Statement, as_time

_COLUMNS = """pool, policy, settings_json, version, min_workers, max_workers, max_launch_per_cycle, template_json,
    lease_holder_json, epoch, lease_expires_at, desired_workers, last_cycle_at"""
_GET = Statement(f"SELECT {_COLUMNS} FROM scheduler WHERE pool = :pool")
_GET_LOCKED = Statement(
    f"SELECT {_COLUMNS} FROM scheduler WHERE pool = :pool",
    f"SELECT {_COLUMNS} FROM scheduler WHERE pool = :pool FOR UPDATE",
)
_ALL = Statement(f"SELECT {_COLUMNS} FROM scheduler ORDER BY pool")
_CREATE = Statement("INSERT INTO scheduler (pool) VALUES (:pool) ON CONFLICT (pool) DO NOTHING")
_STORE = Statement(
    """UPDATE scheduler SET policy = :policy, settings_json = :settings, version = version + 1,
        min_workers = :min_workers, max_workers = :max_workers, max_launch_per_cycle = :max_launch,
        template_json = :template WHERE pool = :pool"""
)
_TAKE = Statement(
    """UPDATE scheduler SET epoch = epoch + 1, lease_holder_json = :holder, lease_expires_at = :expires
    WHERE pool = :pool RETURNING epoch"""
)
_RENEW = Statement("UPDATE scheduler SET lease_expires_at = :expires WHERE pool = :pool AND epoch = :epoch")
_CONFIRM = Statement(
    """UPDATE scheduler SET last_cycle_at = :now, desired_workers = :desired,
        last_scale_up_at = CASE WHEN :up = 1 THEN CAST(:now AS TEXT) ELSE last_scale_up_at END,
        last_scale_down_at = CASE WHEN :down = 1 THEN CAST(:now AS TEXT) ELSE last_scale_down_at END
    WHERE pool = :pool AND epoch = :epoch""",
    """UPDATE scheduler SET last_cycle_at = :now, desired_workers = :desired,
        last_scale_up_at = CASE WHEN :up = 1 THEN CAST(:now AS timestamptz) ELSE last_scale_up_at END,
        last_scale_down_at = CASE WHEN :down = 1 THEN CAST(:now AS timestamptz) ELSE last_scale_down_at END
    WHERE pool = :pool AND epoch = :epoch""",
)
_RELEASE = Statement(
    """UPDATE scheduler SET lease_holder_json = NULL, lease_expires_at = NULL
    WHERE pool = :pool AND epoch = :epoch AND version = :version"""
)
_STILL_MINE = Statement("SELECT 1 FROM scheduler WHERE pool = :pool AND epoch = :epoch")

_IS_IDLE = Statement(
    """SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM work_queue
    WHERE worker = :worker AND status = 'running' AND incarnation = :incarnation)"""
)


def begin(
    transaction: Transaction, pool: str, holder: Holder, change: SettingsChange, lease: float, proven_dead: ProvenDead
) -> ScalerPass:
    """Store the given settings and try the pool's lease."""
    row = transaction.record(_GET_LOCKED, pool=pool)
    if row is None:
        transaction.rows(_CREATE, pool=pool)
        row = transaction.record(_GET_LOCKED, pool=pool)
        if row is None:
            raise UsageError(f"pool {pool} vanished while it was made")
    changed = _store(transaction, row, change)
    if changed:
        row = transaction.record(_GET, pool=pool) or row
    if _is_held(transaction, row, proven_dead):
        return _pass(row, held=False, changed=changed)
    epoch = transaction.value(
        _TAKE,
        pool=pool,
        holder=process_json(holder.process, name=holder.name),
        expires=transaction.now + timedelta(seconds=lease),
    )
    return _pass({**row, "epoch": epoch, "lease_holder_json": dumps({"name": holder.name})}, held=True, changed=changed)


def _is_held(transaction: Transaction, row: Row, proven_dead: ProvenDead) -> bool:
    expires = as_time(row["lease_expires_at"])
    if expires is None or expires < transaction.now:
        return False
    process = process_from_json(row["lease_holder_json"])
    return not (process is not None and proven_dead(process))


def _store(transaction: Transaction, row: Row, change: SettingsChange) -> tuple[str, ...]:
    """Write the settings that differ from the stored ones; return their names."""
    stored: dict[str, Any] = {
        "policy": row["policy"],
        "min_workers": row["min_workers"],
        "max_workers": row["max_workers"],
        "max_launch_per_cycle": row["max_launch_per_cycle"],
        "template": loads(row["template_json"]),
    }
    given: dict[str, Any] = {
        "policy": change.policy,
        "min_workers": change.min_workers,
        "max_workers": change.max_workers,
        "max_launch_per_cycle": change.max_launch_per_cycle,
        "template": change.template.as_json() if change.template else None,
    }
    result = {name: value if given[name] is None else given[name] for name, value in stored.items()}
    if change.without_maximum:
        result["max_workers"] = None
    before = mapping(row["settings_json"])
    after = (
        before if change.policy is None and not change.settings else _settings_after(result["policy"], before, change)
    )
    changed = (*(name for name in stored if result[name] != stored[name]), *_differing(before, after, change))
    if not changed:
        return ()
    if result["max_workers"] is not None and result["max_workers"] < result["min_workers"]:
        raise UsageError(
            f"pool {row['pool']}: the minimum of {result['min_workers']} workers is above the maximum of "
            f"{result['max_workers']}: change one of them"
        )
    transaction.rows(
        _STORE,
        pool=row["pool"],
        policy=result["policy"],
        settings=dumps(after),
        min_workers=result["min_workers"],
        max_workers=result["max_workers"],
        max_launch=result["max_launch_per_cycle"],
        template=dumps(result["template"]) if result["template"] is not None else None,
    )
    record_event(transaction, "settings_changed", row["pool"], ", ".join(changed))
    return changed


def _settings_after(policy: str, before: dict[str, Any], change: SettingsChange) -> dict[str, Any]:
    return merged(policy, before, change.settings or {})


def _differing(before: dict[str, Any], after: dict[str, Any], change: SettingsChange) -> list[str]:
    """Return the names of values that are no longer what they were."""
    given = change.settings or {}
    return [
        name if name in given else f"{name} (dropped)"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _pass(row: Row, *, held: bool, changed: tuple[str, ...] = ()) -> ScalerPass:
    holder = mapping(row["lease_holder_json"])
    return ScalerPass(
        pool=row["pool"],
        epoch=row["epoch"] if held else 0,
        holder=str(holder.get("name", "")),
        held=held,
        settings=PoolSettings(
            policy=row["policy"],
            settings=mapping(row["settings_json"]),
            version=row["version"],
            min_workers=row["min_workers"],
            max_workers=row["max_workers"],
            max_launch_per_cycle=row["max_launch_per_cycle"],
        ),
        template=Template.from_json(loads(row["template_json"])),
        changed=changed,
        desired=row["desired_workers"],
        last_cycle_at=as_time(row["last_cycle_at"]),
    )


def get(transaction: Transaction, pool: str) -> ScalerPass | None:
    """Read a pool's settings."""
    row = transaction.record(_GET, pool=pool)
    return _pass(row, held=False) if row else None


def get_locked(transaction: Transaction, pool: str) -> ScalerPass | None:
    """Read a pool's settings, and let nobody change them until the transaction ends."""
    row = transaction.record(_GET_LOCKED, pool=pool)
    return _pass(row, held=False) if row else None


def get_all(transaction: Transaction) -> tuple[ScalerPass, ...]:
    """Read every pool's settings."""
    return tuple(_pass(row, held=False) for row in transaction.records(_ALL))


def renew(transaction: Transaction, current: ScalerPass, lease: float) -> bool:
    """Extend the pass's lease."""
    expires = transaction.now + timedelta(seconds=lease)
    return bool(transaction.touched(_RENEW, pool=current.pool, epoch=current.epoch, expires=expires))


def end(transaction: Transaction, current: ScalerPass) -> bool:
    """Release the lease if the settings are still those that were acted on (or the lease is another's already)."""
    if transaction.touched(_RELEASE, pool=current.pool, epoch=current.epoch, version=current.settings.version):
        return True
    return transaction.value(_STILL_MINE, pool=current.pool, epoch=current.epoch) is None


def apply(
    transaction: Transaction, current: ScalerPass, plan: Plan, inputs: decisions.Inputs | None = None
) -> Applied | None:
    """Write a plan; None, and nothing written, when the pass is no longer the pool's."""
    confirmed = transaction.touched(
        _CONFIRM,
        pool=current.pool,
        epoch=current.epoch,
        now=transaction.now,
        desired=plan.desired,
        up=int(bool(plan.starts)),
        down=int(bool(plan.resizes or plan.cancels or plan.drains)),
    )
    if not confirmed:
        return None
    decision_id = decisions.record(transaction, current.epoch, plan, inputs)
    started = [_start(transaction, current, decision_id, start) for start in plan.starts]
    for cancel in plan.cancels:
        stop_group(transaction, cancel.group_id, "withdrawn: fewer workers are wanted now")
    drained, kept = _drain_workers(transaction, plan)
    for resize in plan.resizes:
        groups.resize(transaction, resize.group_id, resize.before, resize.after + kept.count(resize.group_id))
    return Applied(
        decision_id,
        tuple(command_id for command_id, _ in started),
        tuple(group_id for _, group_id in started),
        tuple(drained),
    )


_LOCK_WORKER = Statement("SELECT 1", "SELECT 1 FROM worker_registry WHERE worker_id = :worker FOR UPDATE")


def _drain_workers(transaction: Transaction, plan: Plan) -> tuple[list[str], list[str | None]]:
    """Flag workers, by id; return those flagged, and the groups of those that turned out to be busy."""
    drained, kept = [], []
    for worker in sorted(plan.drains, key=lambda worker: worker.worker_id):
        # A claim holds this row until it commits: whether the worker is idle is asked after it, in a new statement.
        transaction.rows(_LOCK_WORKER, worker=worker.worker_id)
        busy = worker.only_if_idle and not transaction.rows(
            _IS_IDLE, worker=worker.worker_id, incarnation=worker.incarnation
        )
        if not busy and drain(transaction, worker.worker_id, worker.incarnation, "scaled down", None):
            drained.append(worker.worker_id)
        elif busy:
            kept.append(worker.group_id)
    return drained, kept


def _start(transaction: Transaction, current: ScalerPass, decision_id: int, start: StartGroup) -> tuple[int, str]:
    """Request a group and order its start; return (command id, group id)."""
    group_id, launch_token = uuid.uuid4().hex[:12], uuid.uuid4().hex
    adapters.know(transaction, start.adapter_id)
    deadline = BOOT_DEADLINE + _rest(transaction, start.adapter_id)
    groups.request(transaction, group_id, current.pool, start, launch_token, decision_id, deadline)
    arguments = {
        "group_id": group_id,
        "launch_token": launch_token,
        "size": start.size,
        "capabilities": dict(start.capabilities),
        "template": current.template.as_json() if current.template else None,
    }
    command_id = commands.issue(
        transaction,
        start.adapter_id,
        current.pool,
        CommandKind.START_WORKER_GROUP,
        arguments,
        epoch=current.epoch,
        lifetime=deadline,
    )
    return command_id, group_id


def _rest(transaction: Transaction, adapter_id: str) -> float:
    """Return how many seconds pass at most before an adapter that runs from time to time runs again."""
    adapter = adapters.get(transaction, adapter_id)
    return adapter.lease_seconds if adapter is not None and adapter.rests else 0.0


def stop_group(transaction: Transaction, group_id: str, reason: str) -> bool:
    """Order a group to stop; of one that has not come up its start is cancelled, or else its place told to end it."""
    stopped = groups.stop(transaction, group_id, reason)
    group = groups.get(transaction, group_id)
    if stopped and group is not None and group.contacted_at is None:
        if commands.cancel_start(transaction, group_id):
            groups.end(transaction, group_id, None)
        else:
            commands.shut_down(transaction, group)
    return stopped
