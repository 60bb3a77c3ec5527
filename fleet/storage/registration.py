"""The registry of workers in SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fleet.clock import boottime
from fleet.domain.execution import Fence, Finish
from fleet.domain.liveness import Gap, lease_is_over
from fleet.domain.worker import (
    LIVE_STATUSES,
    Beat,
    BeatReply,
    WorkerFilter,
    WorkerRecord,
    WorkerRegistration,
    WorkerStatus,
)
from fleet.errors import IllegalTransition, WorkerIdTaken
from fleet.storage import offers, shortfalls
from fleet.storage.access import forbidden
from fleet.storage.database import Database, Transaction
from fleet.storage.draining import drain
from fleet.storage.events import record_event
from fleet.storage.forgetting import Ended, forget
from fleet.storage.interfaces import ALL_WORKERS, ProvenDead
from fleet.storage.parameters import HELD_BY_EACH
from fleet.storage.queue.finishing import write_finishes
from fleet.storage.queue.release import charge, held_by, release, rescue_held
from fleet.storage.rows import UNMEASURED_COLUMNS, WORKER_COLUMNS, dumps, gap_of, process_values, worker_of
from fleet.storage.sql import Row, Statement, as_time, time_of

_MAY_REGISTER = Statement("SELECT 1", "SELECT has_table_privilege('worker_registry', 'INSERT')")
_GET = Statement(f"SELECT {WORKER_COLUMNS} FROM worker_registry WHERE worker_id = :worker")
_GET_LOCKED = Statement(
    f"SELECT {WORKER_COLUMNS} FROM worker_registry WHERE worker_id = :worker",
    f"SELECT {WORKER_COLUMNS} FROM worker_registry WHERE worker_id = :worker FOR UPDATE",
)
_GAP = Statement("SELECT gap_started_at, gap_ended_at FROM maintenance WHERE id = 1")
_DELETE = Statement("DELETE FROM worker_registry WHERE worker_id = :worker AND incarnation = :incarnation")
_INSERT = Statement(
    """
    INSERT INTO worker_registry (worker_id, incarnation, pool, status, started_at, last_heartbeat,
        heartbeat_interval_seconds, lease_seconds, lease_expires_at, slots, host, boot_id, pid_namespace, pid,
        pid_start_ticks, group_id, adapter_id, capabilities_json, queues_json, handlers_json, version, log_path,
        resources_json, metadata_json, idle_since)
    VALUES (:worker, :incarnation, :pool, 'active', :now, :now, :heartbeat, :lease, :expires, :slots, :host, :boot_id,
        :pid_namespace, :pid, :pid_start_ticks, :group_id, :adapter_id, :capabilities, :queues, :handlers, :version,
        :log_path, :resources, :metadata, :now)
    ON CONFLICT (worker_id) DO NOTHING
    """
)

_BEAT_SET = """
UPDATE worker_registry SET
    last_heartbeat = :now,
    lease_expires_at = {expires},
    current_task_id = f.current_task_id,
    idle_since = CASE WHEN f.idle <> 1 THEN NULL
        WHEN f.tasks_done + f.tasks_failed <> worker_registry.tasks_done + worker_registry.tasks_failed
            THEN CAST(:now AS {time})
        ELSE coalesce(idle_since, CAST(:now AS {time})) END,
    tasks_done = f.tasks_done,
    tasks_failed = f.tasks_failed,
    metadata_json = coalesce(f.metadata, metadata_json)
FROM ({rows}) f
WHERE worker_registry.worker_id = f.worker_id AND worker_registry.incarnation = f.incarnation
    AND worker_registry.status IN ('active', 'terminating')
RETURNING worker_registry.worker_id, status, paused, drain_deadline_at, heartbeat_interval_seconds
"""
_BEAT = Statement(
    _BEAT_SET.format(
        time="TEXT",
        expires="strftime('%Y-%m-%dT%H\\:%M\\:%fZ', :now, '+' || lease_seconds || ' seconds')",
        rows="""SELECT json_extract(value, '$.worker_id') AS worker_id,
            json_extract(value, '$.incarnation') AS incarnation,
            json_extract(value, '$.current_task_id') AS current_task_id, json_extract(value, '$.idle') AS idle,
            json_extract(value, '$.tasks_done') AS tasks_done, json_extract(value, '$.tasks_failed') AS tasks_failed,
            json_extract(value, '$.metadata') AS metadata FROM json_each(:beats)""",
    ),
    _BEAT_SET.format(
        time="timestamptz",
        expires="CAST(:now AS timestamptz) + make_interval(secs => lease_seconds)",
        rows="""SELECT worker_id, incarnation, current_task_id, idle, tasks_done, tasks_failed,
            CAST(metadata AS json) AS metadata
            FROM json_to_recordset(CAST(:beats AS json)) AS r (worker_id text, incarnation text,
                current_task_id bigint, idle int, tasks_done bigint, tasks_failed bigint, metadata text)""",
    ),
)
_KEEP_LEASE = Statement(
    """UPDATE worker_registry SET last_heartbeat = :now,
        lease_expires_at = strftime('%Y-%m-%dT%H\\:%M\\:%fZ', :now, '+' || lease_seconds || ' seconds')
    WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating')""",
    """UPDATE worker_registry SET last_heartbeat = date_trunc('milliseconds', clock_timestamp()),
        lease_expires_at = date_trunc('milliseconds', clock_timestamp()) + make_interval(secs => lease_seconds)
    WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating')""",
)
_RUNNING = Statement(
    """SELECT worker, incarnation, id, claim_token, claimed_at, cancel_requested FROM work_queue
    WHERE status = 'running' AND worker IN (SELECT value FROM json_each(:workers))""",
    f"""SELECT q.worker, q.incarnation, q.id, q.claim_token, q.claimed_at, q.cancel_requested
    FROM {HELD_BY_EACH}""",
)
_END = Statement(
    """UPDATE worker_registry SET status = 'terminated', stopped_at = :now, stop_reason = :reason,
        current_task_id = NULL
    WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating')"""
)
_ENDED = Ended(
    "worker_registry",
    "worker_id",
    "e.status IN ('terminated', 'lost') AND coalesce(e.stopped_at, e.lease_expires_at) < :cutoff",
)


class SqlRegistration:
    """`RegistrationBackend` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check_right(self) -> None:
        """Look whether workers can register here; see `RegistrationBackend.check_right`."""
        if not self._database.read(lambda transaction: transaction.value(_MAY_REGISTER)):
            raise forbidden(self._database.shown, "registering workers")

    def register(self, registration: WorkerRegistration, proven_dead: ProvenDead) -> WorkerRecord:
        """Register one incarnation; see `RegistrationBackend.register`."""

        def work(transaction: Transaction) -> WorkerRecord:
            _register(transaction, registration, proven_dead)
            shortfalls.note(transaction, registration)
            row = transaction.record(_GET, worker=registration.worker_id)
            if row is None:
                raise WorkerIdTaken(f"worker {registration.worker_id} vanished while it registered")
            return worker_of(row)

        return self._database.write(work)

    def beat(self, beats: Sequence[Beat]) -> tuple[BeatReply, ...]:
        """Renew leases and reconcile what is held; see `RegistrationBackend.beat`."""
        if not beats:
            return ()
        asked, content = boottime(), _content(beats)
        # What was claimed while the beat waited for the lock is not missing from it.
        return self._database.write(lambda transaction: _beat(transaction, beats, content, boottime() - asked))

    def keep_lease(self, worker_id: str, incarnation: str) -> bool:
        """Renew one lease by a single statement outside any transaction."""
        return bool(self._database.at_once(_KEEP_LEASE, worker=worker_id, incarnation=incarnation))

    def verify(self, worker_id: str, incarnation: str) -> BeatReply:
        """Read what the registry says of one incarnation."""
        row = self._database.read(lambda transaction: transaction.record(_GET, worker=worker_id))
        if row is None or row["incarnation"] != incarnation or row["status"] not in LIVE_STATUSES:
            return BeatReply(worker_id, incarnation, known=False)
        return _reply(row, incarnation)

    def begin_drain(
        self, worker_id: str, *, incarnation: str | None = None, reason: str, deadline: float | None = None
    ) -> bool:
        """Flag a worker `terminating`."""
        return self._database.write(
            lambda transaction: drain(transaction, worker_id, incarnation, reason, deadline),
        )

    def end(
        self,
        worker_id: str,
        incarnation: str,
        *,
        reason: str,
        charged: Fence | None = None,
        failure: Finish | None = None,
    ) -> bool:
        """Mark an incarnation `terminated` and give back what it held."""
        return self._database.write(
            lambda transaction: _end(transaction, worker_id, incarnation, reason, charged, failure)
        )

    def get(self, worker_id: str) -> WorkerRecord | None:
        """Return one worker's row."""
        row = self._database.read(lambda transaction: transaction.record(_GET, worker=worker_id))
        return worker_of(row) if row else None

    def list(self, filter: WorkerFilter = ALL_WORKERS) -> tuple[WorkerRecord, ...]:
        """Return the workers that match, ordered by id."""
        return self._database.read(lambda transaction: list_workers(transaction, filter))

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete rows of workers that ended long ago."""
        return forget(self._database, (_ENDED,), older_than, limit)


def list_workers(transaction: Transaction, filter: WorkerFilter) -> tuple[WorkerRecord, ...]:
    """Return the workers that match, ordered by id."""
    wanted = {
        "host": filter.host,
        "pool": filter.pool,
        "group_id": filter.group_id,
        "fresh_after": filter.fresh_after,
        "stale_before": filter.stale_before,
    }
    conditions = [
        *(f"{column} = :{column}" for column in ("host", "pool", "group_id") if wanted[column] is not None),
        *(["last_heartbeat >= :fresh_after"] if filter.fresh_after else []),
        *(["last_heartbeat < :stale_before"] if filter.stale_before else []),
        *([f"status IN ({', '.join(repr(str(status)) for status in filter.status)})"] if filter.status else []),
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = WORKER_COLUMNS if filter.measured else UNMEASURED_COLUMNS
    rows = transaction.records(Statement(f"SELECT {columns} FROM worker_registry {where} ORDER BY worker_id"), **wanted)
    workers = (worker_of(row) for row in rows)
    return tuple(worker for worker in workers if filter.capability is None or filter.capability in worker.capabilities)


def read_gap(transaction: Transaction) -> Gap | None:
    """Return the last gap between maintenance passes."""
    return gap_of(transaction.record(_GAP))


def is_over(worker: WorkerRecord, now: datetime, gap: Gap | None, proven_dead: ProvenDead) -> bool:
    """Return whether a live worker is lost: proven dead, or past its lease."""
    return proven_dead(worker.process) or lease_is_over(worker.lease_expires_at, worker.lease_seconds, now, gap)


def _register(transaction: Transaction, registration: WorkerRegistration, proven_dead: ProvenDead) -> None:
    offers.note(transaction, registration)
    found = transaction.record(_GET_LOCKED, worker=registration.worker_id)
    if found is not None:
        present = worker_of(found)
        if present.incarnation == registration.incarnation:
            if present.status not in LIVE_STATUSES:
                raise IllegalTransition(
                    f"incarnation {present.incarnation} of worker {present.worker_id} is {present.status}: "
                    "register again as a new incarnation"
                )
            return
        _take_over(transaction, present, proven_dead)
    if not transaction.touched(_INSERT, **_insert_values(transaction, registration)):
        raise WorkerIdTaken(f"worker id {registration.worker_id} was registered by another process just now")
    record_event(transaction, "worker_registered", registration.worker_id, f"pool {registration.pool}")


def _take_over(transaction: Transaction, present: WorkerRecord, proven_dead: ProvenDead) -> None:
    if present.status in LIVE_STATUSES and not is_over(present, transaction.now, read_gap(transaction), proven_dead):
        left = (present.lease_expires_at - transaction.now).total_seconds()
        raise WorkerIdTaken(
            f"worker id {present.worker_id} is in use by pid {present.process.pid} on {present.process.host} "
            f"(incarnation {present.incarnation}, lease ends in {max(0.0, left):.0f} s): give another --worker-id"
        )
    rescue_held(transaction, present.worker_id, present.incarnation, f"worker {present.worker_id} was replaced")
    transaction.rows(_DELETE, worker=present.worker_id, incarnation=present.incarnation)


def _insert_values(transaction: Transaction, registration: WorkerRegistration) -> Row:
    now = transaction.now
    return {
        "worker": registration.worker_id,
        "incarnation": registration.incarnation,
        "pool": registration.pool,
        "now": now,
        "heartbeat": registration.heartbeat_seconds,
        "lease": registration.lease_seconds,
        "expires": now + timedelta(seconds=registration.lease_seconds),
        "slots": registration.slots,
        **process_values(registration.process),
        "group_id": registration.group_id,
        "adapter_id": registration.adapter_id,
        "capabilities": dumps(dict(registration.capabilities)),
        "queues": json.dumps(registration.queues),
        "handlers": json.dumps(sorted(registration.handlers)),
        "version": registration.version,
        "log_path": registration.log_path,
        "resources": None if registration.resources is None else dumps(dict(registration.resources)),
        "metadata": dumps(dict(registration.metadata)),
    }


def _reply(
    row: Row,
    incarnation: str,
    lost: tuple[int, ...] = (),
    released: tuple[int, ...] = (),
    cancelled: tuple[Fence, ...] = (),
) -> BeatReply:
    return BeatReply(
        row["worker_id"],
        incarnation,
        known=True,
        status=WorkerStatus(row["status"]),
        paused=bool(row["paused"]),
        drain_deadline_at=as_time(row["drain_deadline_at"]),
        lost_tasks=lost,
        released_tasks=released,
        cancelled_tasks=cancelled,
    )


def _content(beats: Sequence[Beat]) -> str:
    """Return beats as the parameter of their statement, by worker: made before the lock is taken."""
    content = [
        {
            "worker_id": beat.worker_id,
            "incarnation": beat.incarnation,
            "current_task_id": beat.current_task_id,
            "idle": int(beat.idle),
            "tasks_done": beat.tasks_done,
            "tasks_failed": beat.tasks_failed,
            "metadata": None if beat.metadata is None else dumps(dict(beat.metadata)),
        }
        for beat in sorted(beats, key=lambda beat: beat.worker_id)
    ]
    return json.dumps(content)


def _beat(transaction: Transaction, beats: Sequence[Beat], content: str, waited: float) -> tuple[BeatReply, ...]:
    known = {row["worker_id"]: row for row in transaction.records(_BEAT, beats=content, now=transaction.now)}
    running: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for seen in transaction.rows(_RUNNING, workers=json.dumps(sorted(known))):
        running.setdefault(seen[:2], []).append(seen[2:])
    return tuple(
        _reconcile(
            transaction, beat, known.get(beat.worker_id), running.get((beat.worker_id, beat.incarnation), ()), waited
        )
        for beat in beats
    )


def _reconcile(
    transaction: Transaction, beat: Beat, row: Row | None, own: Sequence[tuple[Any, ...]], waited: float
) -> BeatReply:
    """Compare what a worker holds with what runs in its name, both ways."""
    if row is None:
        return BeatReply(beat.worker_id, beat.incarnation, known=False)
    claimed = {task[:2]: task[2] for task in own}
    held = set(beat.held)
    cancelled = tuple(Fence(task_id, token) for task_id, token, _, cancel_requested in own if cancel_requested)
    # A fresh claim may not have reached the beat yet; one older than a heartbeat has lost its reply.
    limit = transaction.now - timedelta(seconds=row["heartbeat_interval_seconds"] + waited)
    unheld = [Fence(*claim) for claim in sorted(claimed.keys() - held) if time_of(claimed[claim]) < limit]
    released = release(transaction, beat.incarnation, unheld, interrupted=False, reason="the claim's reply was lost")
    if released:
        record_event(transaction, "claims_released", beat.worker_id, f"claims whose reply was lost: {list(released)}")
    lost = tuple(sorted(task_id for task_id, _ in held - claimed.keys()))
    return _reply(row, beat.incarnation, lost, released, cancelled)


def _end(
    transaction: Transaction,
    worker_id: str,
    incarnation: str,
    reason: str,
    charged: Fence | None,
    failure: Finish | None,
) -> bool:
    if not transaction.touched(_END, worker=worker_id, incarnation=incarnation, now=transaction.now, reason=reason):
        return False
    if failure is not None:
        write_finishes(transaction, incarnation, [failure])
    elif charged is not None:
        charge(transaction, incarnation, [charged], reason)
    held = [task.fence for task in held_by(transaction, worker_id, incarnation)]
    release(transaction, incarnation, held, interrupted=True, reason=reason)
    record_event(transaction, "worker_ended", worker_id, reason)
    return True
