"""Why a pool has the workers that it has: its last decision, what it was based on, what the next would be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.adapters import AdapterStatus
from fleet.domain.decision import Decision
from fleet.domain.demand import Work
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.placement import AdapterState
from fleet.domain.plan import Plan, decide
from fleet.domain.policies import policy
from fleet.domain.policies.in_force import in_force, table
from fleet.domain.policies.situation import Situation
from fleet.domain.policies.viewing import situation_of
from fleet.domain.snapshot import PoolSettings, Snapshot
from fleet.domain.supply import supply_of
from fleet.errors import UsageError

SERVED, UNSATISFIABLE, ELSEWHERE = "served", "unsatisfiable", "counted_elsewhere"


@dataclass(frozen=True, slots=True)
class Counted:
    """Open tasks of one kind, and how they count.

    Attributes:
        work: the kind.
        counts_as: `served`, `unsatisfiable` or `counted_elsewhere`.
        pool: the pool for which they count; None where they count for none.
    """

    work: Work
    counts_as: str
    pool: str | None


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting of a pool.

    Attributes:
        name: its name.
        value: what is in force.
        is_default: whether nobody has said it.
        help: what it is.
    """

    name: str
    value: Any
    is_default: bool
    help: str


@dataclass(frozen=True, slots=True)
class AdapterView:
    """An adapter, as the next pass would see it.

    Attributes:
        adapter_id: its id.
        code: `can_start`, `adapter_paused`, `adapter_backoff` or `adapter_full`.
        text: the same in words, with the last failure where there is one.
        groups: groups that it carries.
        room: how many more it can carry; None for any number.
        priority: who is asked first: the higher.
    """

    adapter_id: str
    code: str
    text: str
    groups: int
    room: int | None
    priority: int


@dataclass(frozen=True, slots=True)
class ScalingView:
    """Why a pool has the workers that it has.

    Attributes:
        at: the moment.
        pool: the pool.
        settings: its policy and bounds, as stored.
        last: its last decision; None before the first.
        demand: open tasks by kind, and how they count; of policies that do not follow the work none are read.
        values: settings in force.
        adapters: who may be asked to start workers, and why one cannot.
        next: what a pass would decide now; None where it would be refused.
        refusal: why it would be.
    """

    at: datetime
    pool: str
    settings: PoolSettings
    last: Decision | None
    demand: tuple[Counted, ...]
    values: tuple[SettingInForce, ...]
    adapters: tuple[AdapterView, ...]
    next: Plan | None
    refusal: str | None


def explain_scaling(snapshot: Snapshot, last: Decision | None, groups: tuple[GroupRecord, ...] = ()) -> ScalingView:
    """Return why a pool has the workers that it has.

    Args:
        snapshot: what a pass would see now.
        last: the pool's last decision.
        groups: its groups, ended ones too: why launches failed.
    """
    plan, refusal = _next(snapshot)
    return ScalingView(
        at=snapshot.now,
        pool=snapshot.pool,
        settings=snapshot.settings,
        last=last,
        demand=_demand(snapshot),
        values=_values(snapshot.settings),
        adapters=tuple(_adapter(each, snapshot.now, groups) for each in snapshot.adapters),
        next=plan,
        refusal=refusal,
    )


def _next(snapshot: Snapshot) -> tuple[Plan | None, str | None]:
    try:
        return decide(snapshot), None
    except UsageError as error:
        return None, str(error)


def _demand(snapshot: Snapshot) -> tuple[Counted, ...]:
    try:
        return counted(situation_of(snapshot, supply_of(snapshot)))
    except UsageError:
        return ()


def counted(situation: Situation) -> tuple[Counted, ...]:
    """Return open tasks by kind, and how they count for a pool; most of them first."""
    found = [
        *(Counted(work, SERVED, situation.pool) for work in situation.demand if not situation.is_untold),
        *(Counted(work, UNSATISFIABLE, None) for work in situation.unserved),
        *(Counted(work, ELSEWHERE, pool) for work, pool in situation.elsewhere),
    ]
    return tuple(sorted(found, key=lambda each: (-each.work.pending - each.work.running, each.work.task)))


def _values(settings: PoolSettings) -> tuple[SettingInForce, ...]:
    try:
        values, known = in_force(settings.policy, settings.settings), table(settings.policy)
    except UsageError:
        return ()
    return tuple(
        SettingInForce(name, value, settings.settings.get(name) is None, known[name].help)
        for name, value in values.items()
    )


def _adapter(adapter: AdapterState, now: datetime, groups: tuple[GroupRecord, ...]) -> AdapterView:
    code, text = why_no_start(adapter, now)
    failed = _last_failure(adapter.adapter_id, groups)
    if failed and code in ("can_start", "adapter_backoff"):
        text = f"{text}; its last launch failed: {failed}"
    return AdapterView(adapter.adapter_id, code, text, adapter.groups, adapter.room, adapter.priority)


def why_no_start(adapter: AdapterState, now: datetime) -> tuple[str, str]:
    """Return whether an adapter can be ordered from now: a code, and words."""
    if adapter.status is AdapterStatus.PAUSED:
        why = f": {' '.join(adapter.reason.split())}" if adapter.reason else ""
        return "adapter_paused", f"paused{why} (fleet adapter resume {adapter.adapter_id})"
    if adapter.backoff_until is not None and adapter.backoff_until > now:
        failures = adapter.consecutive_failures
        after = f" after {failures} failed launches (fleet groups)" if failures else ": it had no room"
        return "adapter_backoff", f"backs off until {adapter.backoff_until:%H:%M:%S}Z{after}"
    if adapter.room == 0:
        return "adapter_full", f"full: it carries {adapter.groups} groups"
    room = "any number of groups" if adapter.room is None else f"{adapter.room} more groups"
    return "can_start", f"can start {room}"


def _last_failure(adapter_id: str, groups: tuple[GroupRecord, ...]) -> str | None:
    """Return why an adapter's newest group failed, if it did before it came up."""
    own = [group for group in groups if group.adapter_id == adapter_id]
    newest = max(own, key=lambda group: group.created_at, default=None)
    if newest is None or newest.status is not GroupStatus.FAILED or newest.contacted_at is not None:
        return None
    lines = (newest.error or "no reason is known").splitlines()
    return lines[0] if lines else "no reason is known"


def is_elastic(settings: PoolSettings) -> bool:
    """Return whether a pool's number follows the work, as far as its policy is known here."""
    try:
        return policy(settings.policy).is_elastic
    except UsageError:
        return False


def work_row(each: Counted) -> Mapping[str, Any]:
    """Return a kind of tasks as a JSON object."""
    work = each.work
    return {
        "queue": work.queue,
        "task": work.task,
        "requires": dict(work.requires),
        "assigned_worker": work.assigned_worker,
        "pending": work.pending,
        "running": work.running,
        "seconds": work.seconds,
        "arrivals": work.arrivals,
        "busy_seconds": work.busy,
        "counts_as": each.counts_as,
        "pool": each.pool,
    }
