"""Maintenance in SQL: its lease and gaps, rescue, expiry, pruning of what is not a task."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from fleet.domain.adapters import AdapterRecord, is_lost
from fleet.domain.group import BOOTING, GroupRecord, GroupStatus, supervisor_gone
from fleet.domain.liveness import Gap, gap_between, lease_is_over
from fleet.domain.worker import WorkerRecord
from fleet.errors import DatabaseBusy
from fleet.storage import adapters, commands, groups
from fleet.storage.database import Database, Transaction
from fleet.storage.events import record_event
from fleet.storage.forgetting import Ended, forget
from fleet.storage.interfaces import Holder, MaintenancePass, ProvenDead
from fleet.storage.presence import gone
from fleet.storage.queue.disused import forget_lanes
from fleet.storage.queue.release import rescue_held
from fleet.storage.rows import WORKER_COLUMNS, gap_of, process_from_json, process_json, worker_of
from fleet.storage.sql import Row, Statement, as_time
from fleet.storage.times import stamp

_COLUMNS = "holder_json, epoch, lease_expires_at, last_pass_at, gap_started_at, gap_ended_at"
_GET = Statement(f"SELECT {_COLUMNS} FROM maintenance WHERE id = 1")
_GET_LOCKED = Statement(
    f"SELECT {_COLUMNS} FROM maintenance WHERE id = 1", f"SELECT {_COLUMNS} FROM maintenance WHERE id = 1 FOR UPDATE"
)
_TAKE = Statement(
    """UPDATE maintenance SET holder_json = :holder, epoch = epoch + 1, lease_expires_at = :expires,
        last_pass_at = :now, gap_started_at = :gap_started_at, gap_ended_at = :gap_ended_at
    WHERE id = 1 RETURNING epoch"""
)
_RELEASE = Statement(
    "UPDATE maintenance SET holder_json = NULL, lease_expires_at = NULL WHERE id = 1 AND epoch = :epoch"
)

LEASE = 30.0

_WORKER = Statement(f"SELECT {WORKER_COLUMNS} FROM worker_registry WHERE worker_id = :worker")
_LOSE = Statement(
    """UPDATE worker_registry SET status = 'lost', stopped_at = :now, stop_reason = :reason, current_task_id = NULL
    WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating')
        AND last_heartbeat = :last_heartbeat"""
)
_ORPHANS = Statement(
    """SELECT DISTINCT q.worker, q.incarnation FROM work_queue q
    LEFT JOIN worker_registry w ON w.worker_id = q.worker AND w.incarnation = q.incarnation
    WHERE q.status = 'running' AND (w.worker_id IS NULL OR w.status IN ('terminated', 'lost')) LIMIT :limit"""
)
_IS_ORPHAN = Statement(
    """SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM worker_registry WHERE worker_id = :worker
        AND incarnation = :incarnation AND status IN ('active', 'terminating'))"""
)

_ENDED = (
    Ended(
        "worker_group",
        "group_id",
        "e.status IN ('stopped', 'failed') AND coalesce(e.stopped_at, e.created_at) < :cutoff",
    ),
    Ended(
        "adapter_command",
        "command_id",
        "e.status NOT IN ('pending', 'taken') AND e.finished_at < :cutoff",
        oldest=True,
    ),
    Ended(
        "scaling_decision",
        "decision_id",
        """e.last_seen_at < :cutoff AND e.decision_id < (SELECT max(m.decision_id) FROM scaling_decision m
            WHERE m.pool = e.pool)""",
        oldest=True,
    ),
    Ended("fleet_event", "event_id", "e.at < :cutoff", oldest=True),
    Ended("work_minute", "minute", "e.minute < :cutoff"),
)


def begin(transaction: Transaction, holder: Holder, interval: float, proven_dead: ProvenDead) -> MaintenancePass | None:
    """Take the maintenance lease if a pass is due."""
    row = transaction.record(_GET_LOCKED)
    if row is None or not _is_due(transaction, row, interval, proven_dead):
        return None
    gap = gap_between(as_time(row["last_pass_at"]), transaction.now, gap_of(row))
    epoch = transaction.value(
        _TAKE,
        holder=process_json(holder.process, name=holder.name),
        expires=transaction.now + timedelta(seconds=LEASE),
        now=transaction.now,
        gap_started_at=gap.started_at if gap else None,
        gap_ended_at=gap.ended_at if gap else None,
    )
    return MaintenancePass(int(epoch), transaction.now, gap)


def is_due(transaction: Transaction, interval: float, proven_dead: ProvenDead) -> bool:
    """Return whether a pass may be due: a read, so that nobody takes the write lock to learn that it is not."""
    row = transaction.record(_GET)
    return row is not None and _is_due(transaction, row, interval, proven_dead)


def _is_due(transaction: Transaction, row: Row, interval: float, proven_dead: ProvenDead) -> bool:
    expires, last = as_time(row["lease_expires_at"]), as_time(row["last_pass_at"])
    if expires is not None and expires >= transaction.now:
        process = process_from_json(row["holder_json"])
        if process is None or not proven_dead(process):
            return False
    # A clock that was set back must not put maintenance off for as long.
    return last is None or last > transaction.now or (transaction.now - last).total_seconds() >= interval


def end(transaction: Transaction, current: MaintenancePass) -> None:
    """Release the maintenance lease."""
    transaction.rows(_RELEASE, epoch=current.epoch)


def rescue(
    database: Database, gap: Gap | None, proven_dead: ProvenDead, limit: int, goes_on: Callable[[], bool]
) -> tuple[str, ...]:
    """Mark lost workers and rescue their tasks and orphans, a transaction each; return one line per verdict."""

    def find(transaction: Transaction) -> tuple[list[WorkerRecord], list[tuple[str, str]]]:
        names = gone(transaction, gap, proven_dead, limit)
        lost = [worker_of(row) for name in names for row in transaction.records(_WORKER, worker=name)]
        orphans = [(str(worker), str(incarnation)) for worker, incarnation in transaction.rows(_ORPHANS, limit=limit)]
        return lost, orphans

    lost, orphans = database.read(find)
    steps = [(seen.worker_id, partial(_lose, seen=seen)) for seen in lost]
    steps += [
        (worker_id, partial(_rescue_orphans, worker_id=worker_id, incarnation=incarnation))
        for worker_id, incarnation in orphans
    ]
    verdicts = []
    for worker_id, step in steps:
        verdicts.append(_one(database, worker_id, step))
        if not goes_on():
            break
    return tuple(verdict for verdict in verdicts if verdict)


def _one(database: Database, worker_id: str, work: Callable[[Transaction], str]) -> str:
    """Rescue for one worker; a row that cannot be rescued is told of, and does not keep the others from it."""
    try:
        return database.write(work)
    except DatabaseBusy:
        raise
    except Exception as error:
        return f"what worker {worker_id} held could not be rescued: {type(error).__name__}: {error}"


def _lose(transaction: Transaction, seen: WorkerRecord) -> str:
    """Mark a worker lost if it is still as it was seen, and rescue its tasks; return the verdict, "" when it is not."""
    reason = (
        f"worker {seen.worker_id} (pid {seen.process.pid} on {seen.process.host}) is lost: last heartbeat "
        f"{stamp(seen.last_heartbeat)}, lease {seen.lease_seconds:g} s until {stamp(seen.lease_expires_at)}, "
        f"now {stamp(transaction.now)}"
    )
    if not transaction.touched(
        _LOSE,
        worker=seen.worker_id,
        incarnation=seen.incarnation,
        last_heartbeat=seen.last_heartbeat,
        now=transaction.now,
        reason=reason,
    ):
        return ""
    tasks = rescue_held(transaction, seen.worker_id, seen.incarnation, reason)
    verdict = f"{reason}; tasks rescued: {_reassigned(tasks)}"
    record_event(transaction, "worker_lost", seen.worker_id, verdict)
    return verdict


def _reassigned(tasks: tuple[int, ...]) -> str:
    return f"{list(tasks)}, reassigned to whoever claims them next while they have attempts" if tasks else "none"


def _rescue_orphans(transaction: Transaction, worker_id: str, incarnation: str) -> str:
    if transaction.value(_IS_ORPHAN, worker=worker_id, incarnation=incarnation) is None:
        return ""
    reason = f"incarnation {incarnation} of worker {worker_id} has ended or was never registered"
    tasks = rescue_held(transaction, worker_id, incarnation, reason)
    if not tasks:
        return ""
    verdict = f"{reason}; tasks rescued: {_reassigned(tasks)}"
    record_event(transaction, "tasks_rescued", worker_id, verdict)
    return verdict


def expire(database: Database, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
    """End commands past their time, or of lost adapters, and groups that are gone; return one line each."""
    expired = database.read(lambda transaction: transaction.rows(_ANY_EXPIRED, now=transaction.now))
    lines = database.write(commands.expire) if expired else ()
    lines = (*lines, *_lose_adapters(database, gap, proven_dead))

    def find(transaction: Transaction) -> list[GroupRecord]:
        return [
            group
            for group in groups.live(transaction, None)
            if groups.is_gone(group, transaction.now, gap, proven_dead)
        ]

    for group in database.read(find):
        if group.status is GroupStatus.STOPPING and group.contacted_at is None:
            # Withdrawn before it came up: no failure of its adapter.
            database.write(lambda transaction, one=group.group_id: groups.end(transaction, one, None))  # type: ignore[misc]
            continue
        reason = _why_gone(group, proven_dead)
        if database.write(lambda transaction, one=group.group_id, why=reason: groups.fail(transaction, one, why)):  # type: ignore[misc]
            lines = (*lines, f"group {group.group_id}: {reason}")
    return lines


def _lose_adapters(database: Database, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
    """Note adapters that are lost, and end what was ordered from them and not taken; return one line each."""

    def find(transaction: Transaction) -> list[AdapterRecord]:
        now = transaction.now
        known = adapters.all_adapters(transaction)
        return [each for each in known if is_lost(each, now, proven_dead) and _is_news(each, now, gap)]

    def lose(transaction: Transaction, seen: AdapterRecord) -> list[str]:
        if not adapters.lose(transaction, seen):
            return []
        for group_id in commands.abandon(transaction, seen.adapter_id):
            groups.fail(transaction, group_id, f"adapter {seen.adapter_id} was lost before it started anything")
        return [f"adapter {seen.adapter_id} is lost"]

    return tuple(line for seen in database.read(find) for line in database.write(partial(lose, seen=seen)))


def _is_news(adapter: AdapterRecord, now: datetime, gap: Gap | None) -> bool:
    """Return whether a loss is not noted yet, and no matter of a time in which nobody watched."""
    expires = adapter.lease_expires_at
    if expires is None:
        return False
    return expires >= now or lease_is_over(expires, adapter.lease_seconds, now, gap)


_ANY_EXPIRED = Statement(
    "SELECT 1 FROM adapter_command WHERE status IN ('pending', 'taken') AND expires_at < :now LIMIT 1"
)


def _why_gone(group: GroupRecord, proven_dead: ProvenDead) -> str:
    dead = group.process.pid is not None and proven_dead(group.process)
    if group.status in BOOTING or group.contacted_at is None:
        if dead:
            return f"the launched process {group.process.pid} ended before it registered (exit code unknown)"
        return "the launch did not register within its boot deadline"
    if dead:
        return supervisor_gone(group.process)
    return f"no heartbeat since {stamp(group.last_heartbeat) if group.last_heartbeat else 'its start'}"


def prune(database: Database, older_than: float, limit: int) -> int:
    """Delete what ended long ago, except each pool's newest decision, and lanes that nothing uses."""
    return forget(database, _ENDED, older_than, limit) + forget_lanes(database, limit)
