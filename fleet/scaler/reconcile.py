"""One pass for one pool, from the settings given to it to the workers started or drained.

The pass keeps nothing: it may be killed at any point, and the next one finds by the rows what is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from fleet import process
from fleet.adapters import Adapter, Outcome, note_ended, run_commands
from fleet.clock import Clock, SystemClock
from fleet.domain.decision import inputs_of
from fleet.domain.group import Template
from fleet.domain.plan import Plan, decide
from fleet.domain.policies import follows_work
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.faultpoints import reach
from fleet.maintenance import MaintenanceReport, fail_dead_launches
from fleet.maintenance import run_pass as maintain
from fleet.scaler.foreseeing import foreseen
from fleet.scaler.settings import NEW_POOL, applied_to, checked
from fleet.storage.interfaces import Applied, CarriedOut, Holder, ProvenDead, ScalerPass, SettingsChange, Storage

LEASE = 30.0
"""Seconds for which a pass is believed without renewing; a holder that is proven dead is replaced at once."""

MOST_ROUNDS = 5
"""Decisions of one pass; more than one when settings change meanwhile, or an idle worker just began a task."""


@dataclass(frozen=True, slots=True)
class Scaler:
    """What a pass works with.

    Attributes:
        storage: the store.
        adapter: this host's adapter.
        template_of: how the pool's workers are started, given what is stored; may raise LaunchFailed.
        clock: for waiting and time limits.
        proven_dead: whether a process is certainly gone.
    """

    storage: Storage
    adapter: Adapter
    template_of: Callable[[Template | None], Template]
    clock: Clock = field(default_factory=SystemClock)
    proven_dead: ProvenDead = process.is_dead

    @property
    def adapter_id(self) -> str:
        """The id of this host's adapter."""
        return self.adapter.info().adapter_id


@dataclass(frozen=True, slots=True)
class Round:
    """One decision of a pass and what was written for it."""

    plan: Plan
    applied: Applied


@dataclass
class PassReport:
    """What a pass did.

    Attributes:
        pool: the pool.
        held: whether it held the pool's lease; without it, it only stores settings and acts on its own commands.
        holder: who holds the lease.
        changed: names of the settings that it changed.
        rounds: what it decided, in order.
        outcomes: what became of the adapter's commands.
        maintenance: what the maintenance pass did, if one was due.
        failures: launches and groups found failed, one line each.
        overtaken: whether another pass took the lease over meanwhile.
    """

    pool: str
    held: bool
    holder: str
    changed: tuple[str, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    maintenance: MaintenanceReport | None = None
    failures: list[str] = field(default_factory=list)
    overtaken: bool = False


def run_pass(scaler: Scaler, pool: str, change: SettingsChange) -> PassReport:
    """Run one pass.

    Args:
        scaler: what it works with.
        pool: the pool.
        change: settings to store first.

    Returns:
        What it did.

    Raises:
        UsageError: the settings make no sense; nothing was changed.
        DatabaseError: the database could not be read or written; what was not written yet is left to the next pass.
    """
    control = scaler.storage.control
    stored = _stored(scaler, pool)
    change = checked(pool, change, stored)
    _try(scaler, pool, stored or NEW_POOL, change)
    current = control.begin_pass(pool, holder_here(), change, LEASE, scaler.proven_dead)
    reach("scaler.begun")
    report = PassReport(pool, current.held, current.holder, current.changed)
    report.failures += note_ended(scaler.storage, scaler.adapter)
    if current.held:
        _reconcile_or_release(scaler, current, report)
    else:
        _act(scaler, current, report)
    return report


def _try(scaler: Scaler, pool: str, stored: PoolSettings, change: SettingsChange) -> None:
    """Decide once with settings that are not stored yet: what would end every pass from now on is not stored."""
    wanted = applied_to(stored, change)
    if wanted != stored:
        decide(observe(scaler, pool, wanted))


def preview(scaler: Scaler, pool: str, change: SettingsChange) -> Plan:
    """Return what a pass with these settings would decide now; write nothing.

    Raises:
        UsageError: the settings make no sense.
        DatabaseError: the database could not be read.
    """
    stored = scaler.storage.control.settings(pool)
    change = checked(pool, change, stored.settings if stored else None)
    return foreseen(stored, change, lambda settings: observe(scaler, pool, settings, change.template))[1]


def observe(scaler: Scaler, pool: str, settings: PoolSettings, template: Template | None = None) -> Snapshot:
    """Read everything that a decision is based on, at one moment."""
    return scaler.storage.control.snapshot(pool, settings, scaler.adapter_id, scaler.proven_dead, template)


def holder_here() -> Holder:
    """Return this process, as it holds a lease."""
    identity = process.identify()
    return Holder(f"{identity.host}:{identity.pid}", identity)


def _stored(scaler: Scaler, pool: str) -> PoolSettings | None:
    stored = scaler.storage.control.settings(pool)
    return None if stored is None else stored.settings


def _reconcile_or_release(scaler: Scaler, current: ScalerPass, report: PassReport) -> None:
    try:
        report.maintenance = maintain(scaler.storage, holder_here(), scaler.proven_dead, scaler.clock)
        reach("scaler.maintained")
        _reconcile(scaler, current, report)
    except BaseException:
        # A scaler that loops lives on: its own lease must not keep it out of its next pass.
        with suppress(Exception):
            scaler.storage.control.end_pass(_renewed(scaler, current))
        raise


def go_on(scaler: Scaler, done: CarriedOut, report: PassReport) -> None:
    """Act on a plan that was carried out, and go on as a pass does where settings were changed meanwhile."""
    current = done.current
    try:
        reach("scaler.applied")
        report.rounds.append(Round(done.plan, done.applied))
        _act(scaler, current, report)
        reach("scaler.acted")
        report.failures += note_ended(scaler.storage, scaler.adapter)
        if not scaler.storage.control.end_pass(current):
            _reconcile(scaler, _renewed(scaler, current), report)
    except BaseException:
        with suppress(Exception):
            scaler.storage.control.end_pass(_renewed(scaler, current))
        raise


def _reconcile(scaler: Scaler, current: ScalerPass, report: PassReport) -> None:
    """Decide and act until the world is as decided and the settings are those decided on."""
    control = scaler.storage.control
    for _ in range(MOST_ROUNDS):
        settled = _round(scaler, current, report)
        if report.overtaken:
            return
        if settled and control.end_pass(current):
            reach("scaler.ended")
            return
        current = _renewed(scaler, current)
        report.overtaken = not control.renew_pass(current, LEASE)
        if report.overtaken:
            return
    # Settings are changed faster than passes run: the last of those who change them will try the lease.
    control.end_pass(_renewed(scaler, current))


def _round(scaler: Scaler, current: ScalerPass, report: PassReport) -> bool:
    """Decide once and act; return False when a worker taken for idle was busy by then, so that another must go."""
    snapshot = _expired(scaler, current, report)
    plan = decide(snapshot)
    reach("scaler.observed")
    inputs = partial(inputs_of, snapshot) if follows_work(plan.policy) else None
    applied = scaler.storage.control.apply(current, plan, inputs)
    if applied is None:
        report.overtaken = True
        return False
    reach("scaler.applied")
    report.rounds.append(Round(plan, applied))
    _act(scaler, current, report)
    reach("scaler.acted")
    return len(applied.drained) == len(plan.drains)


def _expired(scaler: Scaler, current: ScalerPass, report: PassReport) -> Snapshot:
    """Observe; where a launch or a supervisor is gone, write that first: its failure counts for the adapter's backoff.

    Else a launch that dies at once would be repeated by every pass until maintenance is due.
    """
    snapshot = observe(scaler, current.pool, current.settings)
    if not snapshot.dead_groups:
        return snapshot
    report.failures += fail_dead_launches(scaler.storage, scaler.proven_dead)
    report.failures += scaler.storage.control.expire(snapshot.gap, scaler.proven_dead)
    return observe(scaler, current.pool, current.settings)


def _act(scaler: Scaler, current: ScalerPass, report: PassReport) -> None:
    report.outcomes += run_commands(
        scaler.storage,
        scaler.adapter,
        current.pool,
        lambda pool: scaler.template_of(current.template),
        scaler.proven_dead,
    )


def _renewed(scaler: Scaler, current: ScalerPass) -> ScalerPass:
    """Return the pass with the settings as they are stored now."""
    stored = scaler.storage.control.settings(current.pool)
    return current if stored is None else replace(current, settings=stored.settings, template=stored.template)
