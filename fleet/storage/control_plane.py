"""The control plane in SQL: verbs, each one transaction, over passes, commands, groups, maintenance and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from fleet.domain.adapters import Tenure
from fleet.domain.decision import Decision
from fleet.domain.group import CommandRecord, GroupOrders, GroupRecord, NewGroup, Template
from fleet.domain.history import History
from fleet.domain.liveness import DEFAULT_LEASE, Gap, ProcessIdentity
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.errors import UsageError
from fleet.storage import carrying_out, commands, decisions, groups, maintenance, minutes, observing, passes, past
from fleet.storage.database import Database, Transaction
from fleet.storage.events import EVENTS_AFTER, record_event
from fleet.storage.interfaces import (
    Applied,
    CarriedOut,
    Holder,
    Judge,
    MaintenancePass,
    MinuteCount,
    ProvenDead,
    ScalerPass,
    SettingsChange,
)
from fleet.storage.registration import read_gap
from fleet.storage.sql import Statement
from fleet.storage.views import VIEWS


class SqlControlPlane:
    """`ControlPlane` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin_pass(
        self, pool: str, holder: Holder, change: SettingsChange, lease: float, proven_dead: ProvenDead
    ) -> ScalerPass:
        """Store the given settings and try the pool's lease."""
        return self._database.write(
            lambda transaction: passes.begin(transaction, pool, holder, change, lease, proven_dead),
            durable=change != SettingsChange(),
        )

    def renew_pass(self, current: ScalerPass, lease: float) -> bool:
        """Extend the pass's lease."""
        return self._database.write(lambda transaction: passes.renew(transaction, current, lease))

    def end_pass(self, current: ScalerPass) -> bool:
        """Release the pass's lease, unless the settings changed meanwhile."""
        return self._database.write(lambda transaction: passes.end(transaction, current))

    def settings(self, pool: str) -> ScalerPass | None:
        """Read a pool's settings."""
        return self._database.read(lambda transaction: passes.get(transaction, pool))

    def pools(self) -> tuple[ScalerPass, ...]:
        """Read every pool's settings."""
        return self._database.read(passes.get_all)

    def snapshot(
        self,
        pool: str,
        settings: PoolSettings,
        adapter_id: str,
        proven_dead: ProvenDead,
        template: Template | None = None,
    ) -> Snapshot:
        """Read everything that a decision is based on, from one snapshot."""
        return self._database.read(
            lambda transaction: observing.snapshot(transaction, pool, settings, adapter_id, proven_dead, template)
        )

    def apply(
        self, current: ScalerPass, plan: Plan, inputs: Callable[[], Mapping[str, Any]] | None = None
    ) -> Applied | None:
        """Write a plan in one transaction."""
        return self._database.write(
            lambda transaction: passes.apply(transaction, current, plan, inputs), durable=not plan.is_empty
        )

    def decisions(
        self, pool: str | None = None, *, since: datetime | None = None, after: int = 0, limit: int = 100
    ) -> tuple[Decision, ...]:
        """Return decisions, newest first."""
        return self._database.read(lambda transaction: decisions.newest(transaction, pool, since, after, limit))

    def decision(self, decision_id: int) -> Decision | None:
        """Return one decision."""
        return self._database.read(lambda transaction: decisions.get(transaction, decision_id))

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
        """Store settings, take the lease and write the plan that `judge` makes, in one transaction."""
        return self._database.write(
            lambda transaction: carrying_out.carry_out(
                transaction, pool, holder, change, lease, proven_dead, adapter_id, judge
            ),
            durable=True,
        )

    def history(self, since: datetime) -> History:
        """Return what came to the queue since then."""
        return self._database.read(lambda transaction: past.history(transaction, since))

    def take_commands(
        self,
        adapter_id: str,
        pool: str | None,
        taker: ProcessIdentity,
        proven_dead: ProvenDead,
        tenure: Tenure | None = None,
    ) -> tuple[CommandRecord, ...]:
        """Take this adapter's open commands; takes the write lock only when there are any."""
        if not self._database.read(lambda transaction: commands.any_open(transaction, adapter_id)):
            return ()
        return self._database.write(
            lambda transaction: commands.take(transaction, adapter_id, pool, taker, proven_dead, tenure)
        )

    def finish_command(
        self,
        command_id: int,
        taker: ProcessIdentity,
        *,
        reply: Mapping[str, Any] | None = None,
        error_code: int | None = None,
        error_message: str | None = None,
    ) -> bool:
        """Close a command that this process has taken."""
        return self._database.write(
            lambda transaction: commands.finish(transaction, command_id, taker, reply, error_code, error_message)
        )

    def postpone_command(self, command_id: int, taker: ProcessIdentity, *, error_code: int, error_message: str) -> bool:
        """Keep a command that this process has taken and could not carry out."""
        return self._database.write(
            lambda transaction: commands.postpone(transaction, command_id, taker, error_code, error_message)
        )

    def commands(self, limit: int = 100) -> tuple[CommandRecord, ...]:
        """Return commands, newest first."""
        return self._database.read(lambda transaction: commands.newest(transaction, limit))

    def open_commands(self) -> tuple[CommandRecord, ...]:
        """Return the commands that nobody has finished."""
        return self._database.read(commands.open_ones)

    def launching(
        self,
        group_id: str,
        launch_token: str,
        process: ProcessIdentity,
        log_path: str | None,
        reference: str | None = None,
    ) -> bool:
        """Note what a launch started."""
        return self._database.write(
            lambda transaction: groups.launching(transaction, group_id, launch_token, process, log_path, reference)
        )

    def late_launch(self, group_id: str, launch_token: str, log_path: str | None, reference: str | None) -> int | None:
        """Order the end of a launch that its group waits for no more."""

        def write(transaction: Transaction) -> int | None:
            if not groups.note_late(transaction, group_id, launch_token, log_path, reference):
                return None
            group = groups.get(transaction, group_id)
            ordered = None if group is None else commands.shut_down(transaction, group)
            if ordered is not None:
                what = "what stands, or may stand, for it is wanted no more: it is shut down"
                record_event(transaction, "launch_too_late", group_id, what)
            return ordered

        return self._database.write(write)

    def contact(
        self, group_id: str, launch_token: str, process: ProcessIdentity, *, lease: float = DEFAULT_LEASE
    ) -> GroupOrders | None:
        """Turn a launch into a running group by compare-and-set of its token."""
        return self._database.write(
            lambda transaction: groups.contact(transaction, group_id, launch_token, process, lease)
        )

    def add_group(self, group: NewGroup) -> GroupOrders:
        """Insert a group that a person started."""
        return self._database.write(lambda transaction: groups.add(transaction, group))

    def beat_group(self, group_id: str, process: ProcessIdentity) -> GroupOrders | None:
        """Renew a group's lease and return its orders."""
        return self._database.write(lambda transaction: groups.beat(transaction, group_id, process))

    def fail_group(
        self, group_id: str, *, error: str, exit_code: int | None = None, launch_token: str | None = None
    ) -> bool:
        """Mark a group failed with its reason."""
        return self._database.write(
            lambda transaction: groups.fail(transaction, group_id, error, exit_code, launch_token)
        )

    def explain_group(self, group_id: str, *, error: str, exit_code: int | None = None) -> bool:
        """Replace the reason of a failed group by a better one."""
        return self._database.write(lambda transaction: groups.explain(transaction, group_id, error, exit_code))

    def stop_group(self, group_id: str, *, reason: str) -> bool:
        """Order a group to stop."""
        return self._database.write(lambda transaction: passes.stop_group(transaction, group_id, reason))

    def end_group(self, group_id: str, *, exit_code: int | None = None) -> bool:
        """Mark a group stopped."""
        return self._database.write(lambda transaction: groups.end(transaction, group_id, exit_code))

    def group(self, group_id: str) -> GroupRecord | None:
        """Return one group."""
        return self._database.read(lambda transaction: groups.get(transaction, group_id))

    def groups(self, pool: str | None = None, live_only: bool = False) -> tuple[GroupRecord, ...]:
        """Return groups, newest first."""
        if live_only:
            found = self._database.read(lambda transaction: groups.live(transaction, pool))
            return tuple(reversed(found))
        return self._database.read(lambda transaction: groups.all_groups(transaction, pool))

    def begin_maintenance(self, holder: Holder, interval: float, proven_dead: ProvenDead) -> MaintenancePass | None:
        """Take the maintenance lease if a pass is due; reads first."""
        if not self._database.read(lambda transaction: maintenance.is_due(transaction, interval, proven_dead)):
            return None
        return self._database.write(lambda transaction: maintenance.begin(transaction, holder, interval, proven_dead))

    def end_maintenance(self, current: MaintenancePass) -> None:
        """Release the maintenance lease."""
        self._database.write(lambda transaction: maintenance.end(transaction, current))

    def last_gap(self) -> Gap | None:
        """Read the last gap between maintenance passes."""
        return self._database.read(read_gap)

    def rescue(
        self, gap: Gap | None, proven_dead: ProvenDead, limit: int = 200, goes_on: Callable[[], bool] = lambda: True
    ) -> tuple[str, ...]:
        """Mark lost workers and rescue their tasks."""
        return maintenance.rescue(self._database, gap, proven_dead, limit, goes_on)

    def expire(self, gap: Gap | None, proven_dead: ProvenDead) -> tuple[str, ...]:
        """End commands past their time and groups that are gone."""
        return maintenance.expire(self._database, gap, proven_dead)

    def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Delete what ended long ago."""
        return maintenance.prune(self._database, older_than, limit)

    def add_minutes(self, counts: Iterable[MinuteCount]) -> None:
        """Add finished tasks to the statistics of the current minute."""
        given = list(counts)
        if given:
            self._database.write(lambda transaction: minutes.add(transaction, given))

    def finished_since(self, seconds: float) -> Mapping[str, int]:
        """Return how many tasks were done and failed in the last seconds, by whole minutes."""
        return self._database.read(lambda transaction: minutes.finished_since(transaction, seconds))

    def event(self, kind: str, subject: str, text: str) -> None:
        """Write one event."""
        self._database.write(lambda transaction: record_event(transaction, kind, subject, text))

    def events(self, after: int = 0, limit: int = 100) -> tuple[Mapping[str, Any], ...]:
        """Return events with a larger id than `after`."""
        return tuple(
            self._database.read(lambda transaction: transaction.records(EVENTS_AFTER, after=after, limit=limit))
        )

    def view(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of a view, columns by name."""
        if name not in VIEWS:
            raise UsageError(f"view {name!r} is unknown: use one of {', '.join(VIEWS)}")
        return tuple(self._database.read(lambda transaction: transaction.records(Statement(f"SELECT * FROM {name}"))))
