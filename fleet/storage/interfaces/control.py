"""Pools, groups, adapters, commands, decisions, maintenance, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fleet.domain.adapters import Tenure
from fleet.domain.decision import Decision
from fleet.domain.group import CommandRecord, GroupOrders, GroupRecord, NewGroup, Template
from fleet.domain.history import History
from fleet.domain.liveness import DEFAULT_LEASE, Gap, ProcessIdentity
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.storage.interfaces.registration import ProvenDead


@dataclass(frozen=True, slots=True)
class MinuteCount:
    """What one worker finished, and had not told of yet, of one handler in one queue."""

    queue: str
    task: str
    done: int
    failed: int
    busy_seconds: float
    max_seconds: float


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
    """Settings given to a pass; what is None keeps its stored value.

    Attributes:
        policy: the policy's name; values of another policy that it does not have are dropped.
        settings: values by name; one that is None is set back to its default. Names not given keep their values.
        min_workers, max_workers, max_launch_per_cycle: as in the pool's row.
        template: how workers are started.
        without_maximum: take the maximum away.
    """

    policy: str | None = None
    settings: Mapping[str, Any] | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    max_launch_per_cycle: int | None = None
    template: Template | None = None
    without_maximum: bool = False


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
        changed: names of the settings that this call changed; those of another policy are called dropped.
        desired: how many workers the last pass wanted; None before the first.
        last_cycle_at: when that was.
    """

    pool: str
    epoch: int
    holder: str
    held: bool
    settings: PoolSettings
    template: Template | None
    changed: tuple[str, ...]
    desired: int | None = None
    last_cycle_at: datetime | None = None


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
class CarriedOut:
    """A plan that was made before and has been carried out: the pass that holds the lease, the plan, what it wrote."""

    current: ScalerPass
    plan: Plan
    applied: Applied


Judged = tuple[Plan, Callable[[], Mapping[str, Any]] | None]
"""A plan, and what makes the ledger's record of what it was based on, as `apply` takes them."""

Judge = Callable[[ScalerPass | None, Callable[[PoolSettings], Snapshot]], Judged]
"""Given what is stored of a pool and a way to look at it with other settings: what to do, or an exception."""


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

    def snapshot(
        self,
        pool: str,
        settings: PoolSettings,
        adapter_id: str,
        proven_dead: ProvenDead,
        template: Template | None = None,
    ) -> Snapshot:
        """Read everything that a decision is based on, in one read transaction.

        `template` is how workers are to be started, where that is not what is stored.
        """

    def apply(
        self, current: ScalerPass, plan: Plan, inputs: Callable[[], Mapping[str, Any]] | None = None
    ) -> Applied | None:
        """Write a plan in one transaction; None, and nothing written, when another pass took over.

        Writes the decision, `requested` groups with their start commands, lowered target sizes, stops and drain flags.
        A worker that the plan took for idle is flagged only if it still is.

        `inputs` says what the decision was based on and changes with every pass; it is asked, and its answer kept with
        the decision, at most once a minute.
        """

    # the ledger of decisions

    def decisions(
        self, pool: str | None = None, *, since: datetime | None = None, after: int = 0, limit: int = 100
    ) -> tuple[Decision, ...]:
        """Return decisions with a larger id than `after` that passes still came to at `since`, newest first."""

    def decision(self, decision_id: int) -> Decision | None:
        """Return one decision."""

    def carry_out(
        self,
        pool: str,
        holder: Holder,
        change: SettingsChange,
        lease: float,
        proven_dead: ProvenDead,
        adapter_id: str,
        judge: Judge,
    ) -> CarriedOut:
        """Let `judge` look at the pool; store the settings, take the lease and write its plan, in one transaction.

        Nothing is written, not even the row of a new pool, when `judge` raises, another pass holds the lease, or a
        worker that was to go has begun a task. `judge` may be called more than once.

        Raises:
            ConflictError: the lease is another's, or a worker is busy by now.
        """

    def history(self, since: datetime) -> History:
        """Return what came to the queue since then, and how long it waited and took, of all pools.

        Each task by itself, or, where there are very many, those of each minute together. Of a time whose rows were
        deleted statistics tell what was finished.
        """

    # commands

    def take_commands(
        self,
        adapter_id: str,
        pool: str | None,
        taker: ProcessIdentity,
        proven_dead: ProvenDead,
        tenure: Tenure | None = None,
    ) -> tuple[CommandRecord, ...]:
        """Take this adapter's pending commands, and those taken by a process proven dead; expire what is too old.

        Who stands for the adapter (`tenure`) takes over what its predecessors have taken as well, unless it has been
        replaced itself. Who does not gets none while a process does.
        """

    def finish_command(
        self,
        command_id: int,
        taker: ProcessIdentity,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a command that this process has taken (failed when an error is given).

        What its adapter refuses counts: codes from 500 on as the adapter's own failures, 429 as want of room, both for
        a while; after many failures the adapter is paused. A success ends the count.

        Returns:
            False when it was not open, or another process has taken it over.
        """

    def postpone_command(self, command_id: int, taker: ProcessIdentity, *, error_code: int, error_message: str) -> bool:
        """Keep a command that this process has taken and could not carry out; it counts as in `finish_command`.

        Returns:
            False when it was not open, or another process has taken it over.
        """

    def commands(self, limit: int = 100) -> tuple[CommandRecord, ...]:
        """Return commands, newest first."""

    def open_commands(self) -> tuple[CommandRecord, ...]:
        """Return the commands that nobody has finished, of each adapter the oldest first."""

    # groups

    def launching(
        self,
        group_id: str,
        launch_token: str,
        process: ProcessIdentity,
        log_path: str | None,
        reference: str | None = None,
    ) -> bool:
        """Note what a launch started: a process of this host, or what its place calls it (`reference`).

        Returns:
            False when the group no longer waits for a launch.
        """

    def late_launch(self, group_id: str, launch_token: str, log_path: str | None, reference: str | None) -> int | None:
        """Order the end of a launch that its group waits for no more: nothing that is paid for is forgotten.

        Returns:
            The shutdown's command id; None when there is no such group, or that order is open already.
        """

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

    def rescue(
        self, gap: Gap | None, proven_dead: ProvenDead, limit: int = 200, goes_on: Callable[[], bool] = lambda: True
    ) -> tuple[str, ...]:
        """Mark lost workers and give their tasks back, a transaction each, guarded by what was seen.

        Also rescues running tasks whose worker row is missing, ended or of another incarnation.

        Args:
            gap: the last gap between maintenance passes.
            proven_dead: whether a process is certainly gone.
            limit: how many lost workers, and how many holders of tasks that are none, are looked for at most.
            goes_on: called after each of them; False leaves the others to a later call.

        Returns:
            One line per verdict, which names worker, last beat, threshold and tasks.
        """

    def expire(self, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
        """End commands past their time and fail groups whose launch or supervisor is gone; return one line each."""

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete ended groups, commands, decisions and events older than `older_than` seconds, and unused lanes."""

    # statistics, events

    def add_minutes(self, counts: Iterable[MinuteCount]) -> None:
        """Add finished tasks to the statistics of the current minute."""

    def finished_since(self, seconds: float) -> Mapping[str, int]:
        """Return how many tasks were `done` and `failed` in the last seconds: statistics by minutes, not truth."""

    def event(self, kind: str, subject: str, text: str) -> None:
        """Write one event."""

    def events(self, after: int = 0, limit: int = 100) -> tuple[Mapping[str, Any], ...]:
        """Return events with a larger id than `after`, by id."""

    def view(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of a view (`fleet_workers`, `fleet_tasks`, `fleet_status`), columns by name."""
