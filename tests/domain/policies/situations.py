"""Situations, snapshots and workers as the tests of policies need them, with few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.domain.adapters import Limits
from fleet.domain.demand import Offered, PoolOffer, Work
from fleet.domain.group import GroupRecord, GroupStatus
from fleet.domain.liveness import ProcessIdentity
from fleet.domain.placement import AdapterState
from fleet.domain.policies import Advice, Situation, policy
from fleet.domain.policies.in_force import in_force
from fleet.domain.policies.situation import Crew
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot
from fleet.domain.worker import WorkerStatus

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "fixed": {"target_workers": 3},
    "fixed_elastic": {"primary": "a", "secondary": "b"},
    "waterfall": {"tiers": "a:2, b:3, c"},
}
"""What policies cannot do without."""


def ago(seconds: float) -> datetime:
    """Return the moment so many seconds before NOW."""
    return NOW - timedelta(seconds=seconds)


def situation(
    name: str, supply: int = 0, *demand: Work, given: Mapping[str, Any] | None = None, **more: Any
) -> Situation:
    """Return the situation of a pool of this policy, with the settings given and defaults for the rest."""
    settings = in_force(name, {**NEEDED.get(name, {}), **(given or {})})
    return Situation(NOW, "default", settings, supply, demand=demand, **more)


def advised(name: str, supply: int = 0, *demand: Work, given: Mapping[str, Any] | None = None, **more: Any) -> Advice:
    """Return what a policy advises there."""
    return policy(name).advise(situation(name, supply, *demand, given=given, **more))


def work(pending: int = 0, running: int = 0, requires: Mapping[str, float] | None = None, **more: Any) -> Work:
    """Return open tasks of handler `t`."""
    return Work("default", more.pop("task", "t"), requires or {}, pending=pending, running=running, **more)


def crew(here: int = 0, coming: int = 0, **capabilities: float) -> Crew:
    """Return workers of handler `t` that offer this."""
    return Crew(Offered(frozenset({"t"}), (), capabilities), here, coming)


def worker(name: str, idle: float | None = None, **more: Any) -> PoolWorker:
    """Return a worker of handler `t` that has been idle for so many seconds; None: it is busy."""
    one = PoolWorker(
        worker_id=name,
        incarnation=f"life-of-{name}",
        group_id=None,
        status=WorkerStatus.ACTIVE,
        started_at=ago(3600),
        slots=1,
        capabilities={},
        queues=(),
        handlers=("t",),
        current_task_id=1 if idle is None else None,
        idle_since=None if idle is None else ago(idle),
    )
    return replace(one, **more)


def workers(number: int, idle: float | None = None, **more: Any) -> tuple[PoolWorker, ...]:
    """Return so many of them."""
    return tuple(worker(f"w{at}-{more.get('group_id')}", idle, **more) for at in range(number))


def adapter(name: str, room: int | None = None, each: int | None = None, **more: Any) -> AdapterState:
    """Return an adapter with room for so many groups of `each` workers."""
    base = more.pop("base", None)
    return AdapterState(name, Limits(room, each, base), **more)


def snapshot(name: str = "drain_time", *tasks: Work, **more: Any) -> Snapshot:
    """Return a pool of this policy with these open tasks."""
    values: dict[str, Any] = {
        "now": NOW,
        "pool": "default",
        "settings": PoolSettings(name, NEEDED.get(name, {}), version=1),
        "groups": (),
        "workers": (),
        "dead_workers": frozenset(),
        "dead_groups": frozenset(),
        "waiting": sum(each.pending for each in tasks),
        "running": sum(each.running for each in tasks),
        "adapters": (AdapterState("native:here"),),
        "work": tasks,
    }
    return Snapshot(**{**values, **more})


def told(pool: str, slots: int = 0, handlers: str = "t", queues: tuple[str, ...] = (), **offers: float) -> PoolOffer:
    """Return a pool whose workers have taken these handlers, written as `a,b`."""
    return PoolOffer(pool, slots, (Offered(frozenset(handlers.split(",")), queues, offers),), queues)


def a_group(name: str, target: int, age: float = 0.0, **more: Any) -> GroupRecord:
    """Return a running group that was ordered so many seconds ago."""
    group = GroupRecord(
        group_id=name,
        pool="default",
        adapter_id="native:here",
        capabilities={},
        target_size=target,
        status=GroupStatus.RUNNING,
        launch_token=name,
        process=ProcessIdentity(),
        created_at=ago(age),
        contacted_at=NOW,
        boot_deadline_at=None,
        last_heartbeat=None,
        lease_expires_at=None,
        lease_seconds=20.0,
        exit_code=None,
        error=None,
        log_path=None,
        decision_id=None,
    )
    return replace(group, **more)
