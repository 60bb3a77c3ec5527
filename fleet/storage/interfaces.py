"""What use cases may ask of a store: three facets that share one transaction, because the rules span them.

Verbs are coarse and atomic: each is one transaction that either happened or did not. Zero rows is an answer (a returned
False, an empty tuple, `known=False`), not an exception. Every write about a claimed task names its fence (task id and
claim token) and the incarnation; a write whose claim is gone changes nothing.

Times in arguments and records are aware UTC datetimes. "Now" is the store's: SQLite reads the injected clock after the
write lock is held, PostgreSQL its server's clock (docs/ARCHITECTURE.md, Clocks and gaps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fleet.domain.execution import Claimant, ClaimReply, Fence, Finish
from fleet.domain.group import CommandRecord, GroupOrders, GroupRecord, NewGroup, Template
from fleet.domain.lanes import Lane
from fleet.domain.liveness import DEFAULT_LEASE, Gap, ProcessIdentity
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.task import Enqueued, HandlerDefaults, NewTask, QueueCounts, TaskFilter, TaskRecord
from fleet.domain.worker import Beat, BeatReply, WorkerFilter, WorkerRecord, WorkerRegistration

ProvenDead = Callable[[ProcessIdentity], bool]
ALL_WORKERS = WorkerFilter()
NEWEST_TASKS = TaskFilter()


class Transaction(Protocol):
    """An open write transaction of the caller, for `enqueue` and for the caller's own rows."""

    @property
    def connection(self) -> Any:
        """The SQLAlchemy connection, on which the caller may execute statements of its own."""


class RegistrationBackend(Protocol):
    """The registry of workers."""

    def register(self, registration: WorkerRegistration, proven_dead: ProvenDead) -> WorkerRecord:
        """Register one incarnation; repeated for the same incarnation it changes nothing but returns the record.

        A row of another incarnation under the same id is taken over when it has ended, when its process is proven
        dead, or when its lease is over; its running tasks are rescued in the same transaction.

        Raises:
            WorkerIdTaken: another incarnation, not proven dead and within its lease, holds the id.
        """

    def beat(self, beats: Sequence[Beat]) -> tuple[BeatReply, ...]:
        """Renew the leases of live incarnations and reconcile what they hold (docs/ARCHITECTURE.md, Heartbeats).

        Never revives: an incarnation that ended, or was never registered, gets `known=False`. Rows that run in the
        worker's name, are not among those held, and were claimed longer than one heartbeat ago go back to the queue
        with the attempt given back. Replies are in the order of `beats`.
        """

    def keep_lease(self, worker_id: str, incarnation: str) -> bool:
        """Renew one live incarnation's lease, and nothing else; return False when it has ended.

        One statement outside any transaction: a thread may call it while another holds the interpreter for long, and
        no lock is held in between.
        """

    def verify(self, worker_id: str, incarnation: str) -> BeatReply:
        """Read (never write) what the registry says of one incarnation: for self-fencing while writes wait."""

    def begin_drain(
        self, worker_id: str, *, incarnation: str | None = None, reason: str, deadline: float | None = None
    ) -> bool:
        """Flag a worker `terminating`; return False when it is not active (or is of another incarnation).

        Args:
            worker_id: the worker.
            incarnation: act only on this life of it.
            reason: stored as `stop_reason`.
            deadline: seconds from now after which it may be interrupted; None waits for its task.
        """

    def end(
        self,
        worker_id: str,
        incarnation: str,
        *,
        reason: str,
        charged: Fence | None = None,
        failure: Finish | None = None,
    ) -> bool:
        """Mark an incarnation `terminated` and give back what it still holds, in one transaction.

        Args:
            worker_id: the worker.
            incarnation: its life.
            reason: stored as `stop_reason`.
            charged: the task that it was executing when it died of it; None charges nobody.
            failure: how the charged task ended, written instead of a release.

        Returns:
            False when the incarnation had already ended.
        """

    def get(self, worker_id: str) -> WorkerRecord | None:
        """Return one worker's row."""

    def list(self, filter: WorkerFilter = ALL_WORKERS) -> tuple[WorkerRecord, ...]:
        """Return the workers that match, ordered by id."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete rows of workers that ended more than `older_than` seconds ago; return how many."""


class WorkQueue(Protocol):
    """The queue of tasks."""

    def enqueue(self, tasks: Sequence[NewTask], *, transaction: Transaction | None = None) -> Enqueued:
        """Add tasks, all or none, durably (synchronous=FULL) unless inside the caller's transaction.

        What a task leaves open is taken from its handler's stored defaults, then from the fleet's.

        Raises:
            UsageError: a capability set beyond the allowed number of distinct ones.
        """

    def lanes(self, after: int = 0) -> tuple[Lane, ...]:
        """Return lanes with a larger id than `after`, by id."""

    def claim(self, claimant: Claimant, lanes: Sequence[tuple[int, int]], limit: int = 1) -> ClaimReply:
        """Claim up to `limit` tasks of these (lane id, tier) in order of tier, rank, id.

        A read decides whether there is anything to claim; only then is the write lock taken. The claiming statement
        itself checks that the incarnation is active and not paused. With `limit` > 1 only tasks with attempts to spare
        and no interruptions come in a batch (their `started_at` stays NULL); any other comes alone, and one that comes
        alone is stamped as started.
        """

    def finish_and_claim(
        self, claimant: Claimant, finishes: Sequence[Finish], lanes: Sequence[tuple[int, int]], limit: int = 1
    ) -> ClaimReply:
        """Write how claimed tasks ended and claim the next, in one commit; `limit` 0 claims nothing.

        `accepted` names the fences that were written; a finish whose claim is gone changes nothing.
        """

    def start(self, claimant: Claimant, fence: Fence) -> bool:
        """Stamp `started_at` of a batched task whose execution lasts; return False when the claim is gone."""

    def release(self, incarnation: str, fences: Sequence[Fence], *, interrupted: bool, reason: str) -> tuple[int, ...]:
        """Give tasks back without spending the attempt; return the ids that were still held.

        Args:
            incarnation: the holder's life.
            fences: the claims.
            interrupted: whether an execution was ended from outside: counts as an interruption, and a task with more
                than ten of them ends `failed/interrupted_too_often`.
            reason: for the event log.
        """

    def progress(self, incarnation: str, fence: Fence, fraction: float | None, text: str | None) -> bool:
        """Store a running task's progress (0 to 1, and a line); return False when the claim is gone."""

    def promote(self, limit: int = 500) -> int:
        """Make due `scheduled` tasks `pending`; return how many."""

    def next_due_in(self) -> float | None:
        """Return seconds until the earliest scheduled task is due (0 when overdue), None when none waits."""

    def claimable(self, lanes: Sequence[int], limit: int) -> int:
        """Return how many tasks of these lanes are pending, counting no further than `limit`."""

    def unfinished(self, lanes: Sequence[int], horizon: float) -> int:
        """Return how many tasks of these lanes are pending, running, or scheduled and due within `horizon` seconds."""

    def get(self, task_id: int) -> TaskRecord | None:
        """Return one task, payload included."""

    def list(self, filter: TaskFilter = NEWEST_TASKS) -> tuple[TaskRecord, ...]:
        """Return the tasks that match, newest first, without payload and result."""

    def counts(self) -> tuple[QueueCounts, ...]:
        """Return open tasks by queue, handler and requirement."""

    def totals(self) -> Mapping[str, int]:
        """Return how many tasks are in each status."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete finished tasks that ended more than `older_than` seconds ago, by a stored cursor; return how many."""

    def declare_handlers(self, handlers: Iterable[HandlerDefaults]) -> None:
        """Store handler defaults that differ from what is stored (read first: idle starts do not write)."""

    def handlers(self) -> tuple[HandlerDefaults, ...]:
        """Return the stored handler defaults, by name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a short lease: a process.

    Attributes:
        name: for people (`host:pid`).
        process: its identity, by which a dead holder is replaced at once.
    """

    name: str
    process: ProcessIdentity


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """Settings given to a pass; what is None keeps its stored value."""

    policy: str | None = None
    settings: Mapping[str, Any] | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    max_launch_per_cycle: int | None = None
    template: Template | None = None


@dataclass(frozen=True, slots=True)
class ScalerPass:
    """A pool's settings as stored, and whether this pass holds the pool's lease.

    Attributes:
        pool: the pool.
        epoch: this pass's epoch; every write of a decision names it. 0 when the lease was not had.
        holder: whose pass it is; when the lease was not had, who has it.
        held: whether this pass holds the lease.
        settings: the settings in force.
        template: how workers are started, if ever said.
        changed: names of the settings that this call changed.
    """

    pool: str
    epoch: int
    holder: str
    held: bool
    settings: PoolSettings
    template: Template | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a plan wrote.

    Attributes:
        decision_id: the ledger's row.
        commands: ids of the commands issued.
        groups: ids of the groups requested.
        drained: worker ids flagged terminating.
    """

    decision_id: int
    commands: tuple[int, ...]
    groups: tuple[str, ...]
    drained: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MaintenancePass:
    """A maintenance pass under its lease: `epoch` fences, `gap` is what `liveness.is_lost` needs."""

    epoch: int
    now: datetime
    gap: Gap | None


class ControlPlane(Protocol):
    """Pools, groups, adapters, commands, decisions and maintenance, as rows."""

    # scaler passes

    def begin_pass(
        self, pool: str, holder: Holder, change: SettingsChange, lease: float, proven_dead: ProvenDead
    ) -> ScalerPass:
        """Store the given settings and try the pool's lease, in one transaction; creates the pool's row."""

    def renew_pass(self, current: ScalerPass, lease: float) -> bool:
        """Extend the pass's lease; return False when another pass took over."""

    def end_pass(self, current: ScalerPass) -> bool:
        """Release the pass's lease; return False (and keep it) when the settings changed meanwhile: decide again."""

    def settings(self, pool: str) -> ScalerPass | None:
        """Read a pool's settings without touching its lease (`held` is False); None when there is no such pool."""

    def pools(self) -> tuple[ScalerPass, ...]:
        """Read every pool's settings, by name."""

    def snapshot(self, pool: str, settings: PoolSettings, adapter_id: str, proven_dead: ProvenDead) -> Snapshot:
        """Read everything that a decision is based on, in one read transaction."""

    def apply(self, current: ScalerPass, plan: Plan) -> Applied | None:
        """Write a plan in one transaction; None, and nothing written, when another pass took over.

        Writes the decision, `requested` groups with their start commands, lowered target sizes, stops and drain flags.
        A worker that the plan took for idle is flagged only if it still is.
        """

    # commands

    def take_commands(
        self, adapter_id: str, pool: str | None, taker: ProcessIdentity, proven_dead: ProvenDead
    ) -> tuple[CommandRecord, ...]:
        """Take this adapter's pending commands, and those taken by a process proven dead; expire what is too old."""

    def finish_command(
        self,
        command_id: int,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a taken command (failed when an error is given); return False when it was not open."""

    def commands(self, limit: int = 100) -> tuple[CommandRecord, ...]:
        """Return commands, newest first."""

    # groups

    def launching(self, group_id: str, launch_token: str, process: ProcessIdentity, log_path: str | None) -> bool:
        """Note the process that a launch started; return False when the group no longer waits for one."""

    def contact(
        self, group_id: str, launch_token: str, process: ProcessIdentity, *, lease: float = DEFAULT_LEASE
    ) -> GroupOrders | None:
        """Turn a requested or launching group `running` by compare-and-set of its token; None when refused.

        The same process may repeat it. `lease` is in seconds.
        """

    def add_group(self, group: NewGroup) -> GroupOrders:
        """Insert a group that a person started, already running."""

    def beat_group(self, group_id: str, process: ProcessIdentity) -> GroupOrders | None:
        """Renew a group's lease and return its orders; None when the group is not this process's or has ended."""

    def fail_group(
        self, group_id: str, *, error: str, exit_code: int | None = None, launch_token: str | None = None
    ) -> bool:
        """Mark a group failed with its reason; False when it had ended. Launches that never ran back their pool off."""

    def explain_group(self, group_id: str, *, error: str, exit_code: int | None = None) -> bool:
        """Replace the guessed reason of a failed group by a better one (a log's tail, an exit code)."""

    def stop_group(self, group_id: str, *, reason: str) -> bool:
        """Order a group to stop: `stopping`, target 0, its workers terminating; False when it had ended."""

    def end_group(self, group_id: str, *, exit_code: int | None = None) -> bool:
        """Mark a group `stopped`; return False when it had ended."""

    def group(self, group_id: str) -> GroupRecord | None:
        """Return one group."""

    def groups(self, pool: str | None = None, live_only: bool = False) -> tuple[GroupRecord, ...]:
        """Return groups, newest first."""

    # maintenance

    def begin_maintenance(self, holder: Holder, interval: float, proven_dead: ProvenDead) -> MaintenancePass | None:
        """Take the maintenance lease if a pass is due (`interval` seconds after the last); None when it is not."""

    def end_maintenance(self, current: MaintenancePass) -> None:
        """Release the maintenance lease."""

    def last_gap(self) -> Gap | None:
        """Read the last gap between maintenance passes."""

    def rescue(self, gap: Gap | None, proven_dead: ProvenDead, limit: int = 200) -> tuple[str, ...]:
        """Mark lost workers and give their tasks back, a transaction each, guarded by what was seen.

        Also rescues running tasks whose worker row is missing, ended or of another incarnation. Returns one line per
        verdict, which names worker, last beat, threshold and tasks.
        """

    def expire(self, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
        """End commands past their time and fail groups whose launch or supervisor is gone; return one line each."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete ended groups, commands, decisions and events older than `older_than` seconds, and unused lanes."""

    # statistics, events

    def add_minutes(self, counts: Iterable[MinuteCount]) -> None:
        """Add finished tasks to the statistics of the current minute."""

    def event(self, kind: str, subject: str, text: str) -> None:
        """Write one event."""

    def events(self, after: int = 0, limit: int = 100) -> tuple[Mapping[str, Any], ...]:
        """Return events with a larger id than `after`, by id."""

    def view(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of a view (`fleet_workers`, `fleet_tasks`, `fleet_status`), columns by name."""


@dataclass(frozen=True, slots=True)
class MinuteCount:
    """What one worker finished since its last beat, of one handler in one queue."""

    queue: str
    task: str
    done: int
    failed: int
    busy_seconds: float
    max_seconds: float


class Watch(Protocol):
    """Notices commits of others without polling hard: the keeper's ear."""

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when something may have changed, None where there is none."""

    def changed(self) -> bool:
        """Return whether anybody committed since the last call (or since the watch began)."""

    def poll_interval(self) -> float:
        """Return seconds between two looks where no descriptor helps."""

    def replaced(self) -> bool:
        """Return whether the database behind the path is another one than was opened."""

    def close(self) -> None:
        """Release what it holds."""


class Storage(Protocol):
    """One database: its three facets, and transactions that span them."""

    @property
    def registry(self) -> RegistrationBackend:
        """The registry of workers."""

    @property
    def queue(self) -> WorkQueue:
        """The queue of tasks."""

    @property
    def control(self) -> ControlPlane:
        """Pools, groups, commands, maintenance."""

    @property
    def url(self) -> str:
        """The database's URL without a password."""

    @property
    def created(self) -> bool:
        """Whether opening it has made the database's file."""

    @property
    def tolerates_slow_writes(self) -> bool:
        """Whether a worker whose beat waits may go on after reading its row (SQLite), or must fence itself."""

    def now(self) -> datetime:
        """Return the store's time."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a durable write transaction, committed at the end of the block, rolled back on an exception."""

    def watch(self) -> Watch:
        """Begin to watch for commits."""

    def on_wait(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` from time to time while an operation waits for a lock or a connection."""

    def close(self) -> None:
        """Close all connections."""
