"""Scaler passes and plans as the storage tests need them, with few words."""

from dataclasses import replace
from typing import Any

from fleet.domain.group import GroupRecord, Template
from fleet.domain.plan import Plan, StartGroup
from fleet.domain.reasons import Reason
from fleet.storage.interfaces import Applied, ScalerPass, SettingsChange, Storage
from tests.storage.samples import everybody, holder, nobody

ADAPTER = "native:host-a"
TEMPLATE = Template("/usr/bin/python3", "/srv/app", {"tasks": ["jobs"], "lease": "20s"})
FIXED = SettingsChange(policy="fixed", settings={"target_workers": 2}, template=TEMPLATE)
NO_CHANGE = SettingsChange()


def begin(store: Storage, pid: int = 1, change: SettingsChange = NO_CHANGE, pool: str = "default") -> ScalerPass:
    """Begin a pass of the scaler with this pid, with a lease of 30 s, believing everybody alive."""
    return store.control.begin_pass(pool, holder(f"scaler:{pid}", pid), change, 30.0, nobody)


def take_over(store: Storage) -> ScalerPass:
    """Begin a pass that has the lease, whoever had it."""
    return store.control.begin_pass("default", holder("scaler:9", 9), NO_CHANGE, 30.0, everybody)


def plan(**given: Any) -> Plan:
    """Return a plan that does nothing, but for what is given."""
    nothing = Plan("default", "fixed", 1, 0, 0, 0, 0, 2, 2, 0, 0, (Reason("fixed", "policy fixed: target 2"),))
    return replace(nothing, **given)


def starting(*sizes: int) -> Plan:
    """Return a plan that starts groups of these sizes."""
    return plan(starts=tuple(StartGroup(ADAPTER, size) for size in sizes))


def applied(store: Storage, what: Plan, current: ScalerPass | None = None) -> Applied:
    """Apply a plan, which must be accepted."""
    result = store.control.apply(current or take_over(store), what)
    assert result is not None
    return result


def requested_group(store: Storage, size: int = 2) -> GroupRecord:
    """Let a pass request one group."""
    [group_id] = applied(store, starting(size)).groups
    return group(store, group_id)


def group(store: Storage, group_id: str) -> GroupRecord:
    """Return a group, which must be there."""
    record = store.control.group(group_id)
    assert record is not None
    return record
