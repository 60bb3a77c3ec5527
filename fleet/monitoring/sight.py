"""One reading of the fleet, and what follows from it directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.adapters import AdapterRecord
from fleet.domain.group import ENDED_GROUPS, CommandRecord, GroupRecord, GroupStatus, is_gone
from fleet.domain.health import Health, assess
from fleet.domain.lanes import Lane, Offer
from fleet.domain.liveness import Gap
from fleet.domain.policies import fixed, follows_work
from fleet.domain.quarantine import Quarantine
from fleet.domain.snapshot import PoolSettings
from fleet.domain.task import QueueCounts
from fleet.domain.worker import WorkerRecord
from fleet.monitoring import adapters
from fleet.monitoring.adapters import AdapterState
from fleet.monitoring.workers import CLAIMING_STATES, LIVE_STATES, WorkerState, state_of
from fleet.storage.interfaces import OpenTransaction, Pause

LOST = "lost"
"""What a group is whose row says that it is there, while its process or lease says that it is not."""

_COMING = (GroupStatus.REQUESTED, GroupStatus.LAUNCHING, GroupStatus.RUNNING)

PATIENCE = 120.0
"""Seconds after a pool's last pass within which its next one is still expected: cron's is due every minute."""


@dataclass(frozen=True, slots=True)
class LastPass:
    """What a pool's last pass wanted.

    Attributes:
        desired: how many workers; None where no pass has decided yet.
        at: when it decided.
    """

    desired: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a status is made from: one reading of the database.

    Attributes:
        now: the database's time.
        workers: rows of workers.
        dead: of those, (worker id, incarnation) whose process is certainly gone.
        gap: the last gap between maintenance passes.
        groups: worker groups.
        dead_groups: ids of those, not ended, whose launch or supervisor is certainly gone.
        counts: open tasks by queue, handler and requirement.
        pools: settings of each pool, by name.
        passes: what each pool's last pass wanted, by name.
        totals: tasks in each status, finished ones included, where they were counted.
        moving: (worker id, incarnation) whose process is certainly there, and not stopped.
        pauses: queues that are paused now.
        finished: tasks done and failed, by seconds back from now: statistics.
        sizes: bytes by what takes them, where that is known.
        seal: what a sealed database says to whoever wants to write.
        transactions: the oldest open ones of others, on a server.
        held: tasks that the limits of their keys hold back.
        paused_schedules: schedules whose ticks are left out now, by name.
        quarantines: those that have not been released.
        adapters: all adapters.
        dead_adapters: ids of those whose process is certainly gone.
        commands: those to adapters that are open.
    """

    now: datetime
    workers: tuple[WorkerRecord, ...] = ()
    dead: frozenset[tuple[str, str]] = frozenset()
    gap: Gap | None = None
    groups: tuple[GroupRecord, ...] = ()
    dead_groups: frozenset[str] = frozenset()
    counts: tuple[QueueCounts, ...] = ()
    pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    totals: Mapping[str, int] | None = None
    moving: frozenset[tuple[str, str]] = frozenset()
    pauses: tuple[Pause, ...] = ()
    finished: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    seal: str | None = None
    transactions: tuple[OpenTransaction, ...] = ()
    held: int = 0
    paused_schedules: tuple[str, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    adapters: tuple[AdapterRecord, ...] = ()
    dead_adapters: frozenset[str] = frozenset()
    commands: tuple[CommandRecord, ...] = ()
    passes: Mapping[str, LastPass] = field(default_factory=dict)
    _states: dict[tuple[str, str], WorkerState] = field(default_factory=dict, init=False, repr=False, compare=False)
    _healths: dict[tuple[str, str], Health] = field(default_factory=dict, init=False, repr=False, compare=False)

    def state(self, worker: WorkerRecord) -> WorkerState:
        """Return how a worker is doing; it is judged once."""
        life = (worker.worker_id, worker.incarnation)
        known = self._states.get(life)
        if known is None:
            known = self._states[life] = self._judged(worker, life)
        return known

    def _judged(self, worker: WorkerRecord, life: tuple[str, str]) -> WorkerState:
        held = self.quarantine_of(worker) is not None
        return state_of(worker, self.now, self.gap, life in self.dead, life in self.moving, held)

    def quarantine_of(self, worker: WorkerRecord) -> Quarantine | None:
        """Return the quarantine that is in force for a worker, its host's included."""
        return next((one for one in self.quarantines if one.holds(self.now) and one.covers(worker)), None)

    def health(self, worker: WorkerRecord) -> Health:
        """Return how well a live worker is, by what is known at this moment; it is assessed once."""
        life = (worker.worker_id, worker.incarnation)
        known = self._healths.get(life)
        if known is None:
            known = self._healths[life] = assess(worker, self.now)
        return known

    def overdue(self, worker: WorkerRecord) -> bool:
        """Return whether a worker is past its lease, and believed only because its process is seen here."""
        return worker.lease_expires_at < self.now and self.state(worker) is WorkerState.LATE

    def is_lost(self, group: GroupRecord) -> bool:
        """Return whether a group's row says that it is there, and it is not: nobody has written it off yet."""
        if group.status in ENDED_GROUPS:
            return False
        return is_gone(group, self.now, self.gap, group.group_id in self.dead_groups)

    def group_state(self, group: GroupRecord) -> str:
        """Return a group's status, or `lost`."""
        return LOST if self.is_lost(group) else str(group.status)

    def live(self) -> tuple[WorkerRecord, ...]:
        """Return the workers with a fresh beat."""
        return tuple(worker for worker in self.workers if self.state(worker) in LIVE_STATES)

    def claiming(self) -> tuple[WorkerRecord, ...]:
        """Return the live workers that take new tasks."""
        return tuple(worker for worker in self.workers if self.state(worker) in CLAIMING_STATES)

    def offered(self) -> frozenset[str]:
        """Return the names of the handlers that live workers have."""
        return frozenset(name for worker in self.live() for name in worker.handlers)

    def waiting(self) -> int:
        """Return how many tasks wait for a worker; those of paused queues wait for somebody to resume them."""
        return sum(counts.pending for counts in self.counts if not self.is_paused(counts.queue))

    def is_paused(self, queue: str) -> bool:
        """Return whether nothing is claimed from a queue now."""
        return any(pause.queue == queue for pause in self.pauses)

    def has_nobody(self, pool: str) -> bool:
        """Return whether a pool asks for workers, none of its workers is live, and none is on its way."""
        return bool(self.asked_for(pool)) and self.is_empty(pool) and not self.launching(pool)

    def asked_for(self, pool: str) -> int | None:
        """Return how many workers a pool asks for; None where it leaves the number as it is, or nobody knows yet."""
        if pool not in self.pools:
            return None
        return desired(self.pools[pool], self.passes.get(pool, LastPass()).desired)

    def launching(self, pool: str) -> int:
        """Return how many workers of a pool are ordered and not yet here."""
        here = Counter(worker.group_id for worker in self.live() if worker.pool == pool)
        return sum(
            max(0, group.target_size - here[group.group_id])
            for group in self.groups
            if group.pool == pool and group.status in _COMING and not self.is_lost(group)
        )

    def unattended_for(self, pool: str) -> float | None:
        """Return for how many seconds no pass has looked at a pool; None where none ever did."""
        at = self.passes.get(pool, LastPass()).at
        return None if at is None else max(0.0, (self.now - at).total_seconds())

    def is_attended(self, pool: str) -> bool:
        """Return whether a pass has looked at a pool lately, so that the next one is to be expected."""
        ago = self.unattended_for(pool)
        return ago is not None and ago <= PATIENCE

    def elastic(self) -> tuple[str, ...]:
        """Return the pools whose numbers follow the work, by name."""
        return tuple(sorted((name for name, each in self.pools.items() if follows_work(each.policy)), key=str))

    def is_empty(self, pool: str) -> bool:
        """Return whether none of a pool's workers is live."""
        return not any(worker.pool == pool for worker in self.live())

    def adapter_state(self, adapter: AdapterRecord) -> AdapterState:
        """Return how an adapter is doing."""
        return adapters.state_of(adapter, self.now, adapter.adapter_id in self.dead_adapters)

    def is_adapter_lost(self, adapter: AdapterRecord) -> bool:
        """Return whether an adapter's process is gone without having left."""
        return adapters.is_lost(adapter, self.now, adapter.adapter_id in self.dead_adapters)

    def scaled_to_zero(self) -> bool:
        """Return whether every pool was told to have no workers, by somebody: not because there was nothing to do."""
        return bool(self.pools) and all(map(is_told_zero, self.pools.values()))


def is_told_zero(settings: PoolSettings) -> bool:
    """Return whether somebody told the pool to have no workers."""
    return settings.max_workers == 0 or (settings.policy == "fixed" and desired(settings) == 0)


def desired(settings: PoolSettings, decided: int | None = None) -> int | None:
    """Return how many workers the pool asks for, None where its policy leaves the number as it is.

    Args:
        settings: of the pool.
        decided: what its last pass wanted: what a policy that follows the work asks for until the next.
    """
    if settings.policy == "no":
        return settings.min_workers or None
    if settings.policy != "fixed":
        return _held(settings, decided) if decided is not None else settings.min_workers or None
    asked = fixed.target(settings.settings)
    if asked is None:
        return settings.min_workers or None
    return _held(settings, asked)


def _held(settings: PoolSettings, number: int) -> int:
    """Return a number of workers, held to the bounds as they are now."""
    least = max(number, settings.min_workers)
    return least if settings.max_workers is None else min(least, settings.max_workers)


def can_take(worker: WorkerRecord, counts: QueueCounts) -> bool:
    """Return whether a worker, as registered, may claim tasks of this handler, queue and requirement."""
    queues = tuple((queue, 0.0) for queue in worker.queues)
    offer = Offer(worker.worker_id, frozenset(worker.handlers), queues, worker.capabilities)
    return offer.serves(Lane(0, counts.queue, counts.task, counts.requires))
