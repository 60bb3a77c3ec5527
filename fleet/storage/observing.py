"""What a scaler pass sees, in SQL: one snapshot of a pool, its groups and workers, and of what waits.

Workers are read in as many columns as a plan needs, and what many of them have alike is read once: a pool may have
10,000 of them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fleet.domain import clamps
from fleet.domain.adapters import NATIVE, AdapterRecord, Limits, is_alive, native_id
from fleet.domain.group import Template, adapter_backoff
from fleet.domain.metrics import number
from fleet.domain.placement import AdapterState
from fleet.domain.policies import follows_work
from fleet.domain.policies.in_force import in_force
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot
from fleet.domain.worker import WorkerStatus
from fleet.errors import UsageError
from fleet.storage import adapters, demand, groups, offers
from fleet.storage.database import Transaction
from fleet.storage.interfaces import ProvenDead
from fleet.storage.presence import PRESENCE, PRESENCE_WIDTH, is_gone
from fleet.storage.registration import read_gap
from fleet.storage.rows import lane_of, names_of, quantities
from fleet.storage.sql import Statement, as_time, time_of

_OPEN_TASKS = Statement(
    """SELECT (SELECT count(*) FROM work_queue WHERE status = 'pending'),
        (SELECT count(*) FROM work_queue WHERE status = 'running')"""
)
_WANTED = Statement(
    """SELECT l.lane_id, l.queue, l.task, l.capability_key, l.assigned_worker FROM claim_lane l
    WHERE EXISTS (SELECT 1 FROM work_queue WHERE status = 'pending' AND lane_id = l.lane_id)
        OR EXISTS (SELECT 1 FROM work_queue WHERE status = 'blocked' AND lane_id = l.lane_id)
        OR l.lane_id IN (SELECT DISTINCT s.lane_id FROM (SELECT lane_id FROM work_queue
            WHERE status = 'scheduled' AND available_at <= :soon ORDER BY available_at LIMIT 10000) AS s)
    ORDER BY l.lane_id"""
)
_POOL = Statement(
    """SELECT template_json, last_cycle_at, last_scale_up_at, last_scale_down_at FROM scheduler WHERE pool = :pool"""
)
_SOON = 60.0
LONGEST_REACH = 86_400.0
"""Seconds of the ledger that a pass reads, at most."""
# A worker's row says what it executes as of the last heartbeat; its running rows say it as of now.
_WORKERS_TEXT = f"""SELECT {PRESENCE}, worker_id, incarnation, group_id, status, started_at, slots, capabilities_json,
        queues_json, handlers_json, (SELECT q.id FROM work_queue q WHERE q.status = 'running' AND q.worker = w.worker_id
            AND q.incarnation = w.incarnation ORDER BY q.id LIMIT 1), {{more}}
    FROM worker_registry w WHERE w.status IN ('active', 'terminating') AND w.pool = :pool ORDER BY w.worker_id"""
_WORKERS = Statement(_WORKERS_TEXT.format(more="NULL, NULL, NULL"))
# What only policies that follow the work ask of each worker.
_WORKERS_AT_WORK = Statement(
    _WORKERS_TEXT.format(more="adapter_id, idle_since, json_extract(metadata_json, '$.cpu_percent')"),
    # A server refuses to look into a document in which a character is escaped that its texts cannot hold.
    _WORKERS_TEXT.format(
        more="""adapter_id, idle_since, CASE WHEN strpos(CAST(metadata_json AS TEXT), '\\u') = 0
            THEN metadata_json->>'cpu_percent' END"""
    ),
)
_FAILED_LAUNCHES = Statement(
    """SELECT count(*), max(g.stopped_at) FROM worker_group g
    WHERE g.pool = :pool AND g.adapter_id = :adapter_id AND g.status = 'failed' AND g.contacted_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM worker_group c WHERE c.pool = :pool AND c.adapter_id = :adapter_id
            AND c.contacted_at IS NOT NULL AND c.contacted_at >= g.created_at)
        AND NOT EXISTS (SELECT 1 FROM scaling_decision d
            WHERE d.decision_id = g.decision_id AND d.settings_version < :version)"""
)
_CARRIED = Statement(
    """SELECT adapter_id, count(*) FROM worker_group
    WHERE adapter_id IS NOT NULL AND status NOT IN ('stopped', 'failed') GROUP BY adapter_id"""
)
_QUARANTINED = Statement(
    """SELECT w.worker_id, w.incarnation FROM quarantine z JOIN worker_registry w
        ON z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END
    WHERE z.released_at IS NULL AND z.until > :now AND w.status IN ('active', 'terminating')"""
)


def snapshot(
    transaction: Transaction,
    pool: str,
    settings: PoolSettings,
    adapter_id: str,
    proven_dead: ProvenDead,
    template: Template | None = None,
) -> Snapshot:
    """Read what a decision is based on."""
    now, gap = transaction.now, read_gap(transaction)
    elastic = follows_work(settings.policy)
    rows = transaction.rows(_WORKERS_AT_WORK if elastic else _WORKERS, pool=pool, now=now)
    found = groups.live(transaction, pool)
    text, *times = next(iter(transaction.rows(_POOL, pool=pool)), (None, None, None, None))
    given, template = template, template or offers.template_of(text)
    # Whoever counts by lane need not count again.
    waiting, running = (0, 0) if elastic else transaction.rows(_OPEN_TASKS)[0]
    plain = Snapshot(
        now=now,
        pool=pool,
        settings=settings,
        groups=found,
        workers=_workers(rows),
        dead_workers=frozenset(
            (row[PRESENCE_WIDTH], row[PRESENCE_WIDTH + 1]) for row in rows if is_gone(row, now, gap, proven_dead)
        ),
        dead_groups=frozenset(group.group_id for group in found if groups.is_gone(group, now, gap, proven_dead)),
        waiting=waiting,
        running=running,
        adapters=_adapters(transaction, pool, settings.version, adapter_id, proven_dead),
        gap=gap,
        quarantined=_quarantined(transaction),
        wanted=tuple(
            lane_of(row) for row in transaction.rows(_WANTED, soon=transaction.now + timedelta(seconds=_SOON))
        ),
        offered=offers.capabilities_of(template),
        slots=offers.slots_of(template),
        last_cycle_at=as_time(times[0]),
        last_scale_up_at=as_time(times[1]),
        last_scale_down_at=as_time(times[2]),
    )
    return _with_demand(transaction, plain, given) if elastic else plain


def _with_demand(transaction: Transaction, plain: Snapshot, given: Template | None) -> Snapshot:
    pace = demand.pace_of(plain.now)
    found = demand.open_work(transaction, pace)
    return replace(
        plain,
        waiting=found.waiting,
        running=found.running,
        work=found.works,
        pools=offers.pools(transaction, plain.pool, given),
        pace_window=pace.window,
        advices=demand.advices(transaction, plain.pool, _reach(plain.settings)),
    )


def _reach(settings: PoolSettings) -> float:
    """Return how many seconds back the pool's clamps look at what was advised."""
    try:
        return min(clamps.reach(in_force(settings.policy, settings.settings)), LONGEST_REACH)
    except UsageError:
        # The decision names what is wrong with them.
        return 0.0


def _workers(rows: list[tuple[Any, ...]]) -> tuple[PoolWorker, ...]:
    known: dict[tuple[str, str, str], tuple[Any, Any, Any]] = {}
    return tuple(_worker(row[PRESENCE_WIDTH:], known) for row in rows)


def _worker(row: tuple[Any, ...], known: dict[tuple[str, str, str], tuple[Any, Any, Any]]) -> PoolWorker:
    """Return a row as a worker; texts that say the same offer are read once."""
    texts = row[6:9]
    offer = known.get(texts)
    if offer is None:
        offer = known[texts] = (quantities(texts[0]), names_of(texts[1]), names_of(texts[2]))
    return PoolWorker(
        worker_id=row[0],
        incarnation=row[1],
        group_id=row[2],
        status=WorkerStatus(row[3]),
        started_at=time_of(row[4]),
        slots=row[5],
        capabilities=offer[0],
        queues=offer[1],
        handlers=offer[2],
        current_task_id=row[9],
        adapter_id=row[10],
        idle_since=as_time(row[11]),
        cpu_percent=_percent(row[12]),
    )


def _percent(value: Any) -> float | None:
    """Return a worker's share of a core as its heartbeat told it; a server gives texts."""
    try:
        return number(float(value)) if isinstance(value, str) else number(value)
    except ValueError:
        return None


def _quarantined(transaction: Transaction) -> frozenset[tuple[str, str]]:
    """Return (worker id, incarnation) of those that claim nothing because they, or their hosts, are in quarantine."""
    return frozenset(
        (worker, incarnation) for worker, incarnation in transaction.rows(_QUARANTINED, now=transaction.now)
    )


def _adapters(
    transaction: Transaction, pool: str, version: int, own: str, proven_dead: ProvenDead
) -> tuple[AdapterState, ...]:
    """Return who may be asked: adapters for which a process stands, and this host's own, unless one stands here."""
    known = {adapter.adapter_id: adapter for adapter in adapters.all_adapters(transaction)}
    alive = [each for each in known.values() if is_alive(each, transaction.now, proven_dead)]
    carried = dict(transaction.rows(_CARRIED))
    asked: dict[str, AdapterRecord | None] = {adapter.adapter_id: adapter for adapter in alive}
    if not any(each.kind == NATIVE and native_id(each.process.host or "") == own for each in alive):
        asked.setdefault(own, known.get(own))
    return tuple(
        _adapter(adapter_id, adapter, carried.get(adapter_id, 0), *_launches(transaction, pool, version, adapter_id))
        for adapter_id, adapter in asked.items()
    )


def _launches(transaction: Transaction, pool: str, version: int, adapter_id: str) -> tuple[int, datetime | None]:
    """Return how many of this pool's launches have failed lately, and until when that is reason to wait.

    Derived from the groups themselves, so that another pool's failures are its own: launches that never made contact,
    since one did, under the present settings. A changed setting may have mended what failed, and is tried at once.
    """
    failures, last = transaction.rows(_FAILED_LAUNCHES, pool=pool, adapter_id=adapter_id, version=version)[0]
    failed_at = as_time(last)
    return (0, None) if failed_at is None else (failures, failed_at + timedelta(seconds=adapter_backoff(failures)))


def _adapter(
    adapter_id: str, adapter: AdapterRecord | None, carried: int, failures: int, until: datetime | None
) -> AdapterState:
    if adapter is None:
        return AdapterState(adapter_id, groups=carried, backoff_until=until, consecutive_failures=failures)
    return AdapterState(
        adapter_id,
        # What nobody stands for any more has no limits: they were those of the process that stood for it.
        adapter.limits if adapter.lease_expires_at is not None else Limits(),
        carried,
        adapter.resizes or adapter.lease_expires_at is None,
        adapter.priority,
        adapter.status,
        adapter.reason,
        max(filter(None, (until, adapter.backoff_until)), default=None),
        max(failures, adapter.consecutive_failures),
        (adapter.limits.on_request or {}) if adapter.lease_expires_at is not None else {},
    )
