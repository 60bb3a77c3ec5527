"""What a plan is based on, as digests: a plan that is carried out later must find the world as it was. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fleet.domain.group import GroupRecord, Template
from fleet.domain.places import AdapterState
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings, PoolWorker, Snapshot

PARTS = ("settings", "groups", "workers", "adapters", "orders")
"""Parts of what a plan is based on, in the order in which they are compared."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan is based on.

    How many tasks wait, and who is busy, changes all the time; it is in the orders, as far as these follow from it.

    Attributes:
        version: the version of the pool's settings as they are stored; 0 where there is no such pool.
        digests: by part.
        counts: how many groups, workers, adapters there are.
        desired: how many workers there should be.
    """

    version: int
    digests: Mapping[str, str]
    counts: Mapping[str, int]
    desired: int


def basis_of(stored: PoolSettings | None, template: Template | None, snapshot: Snapshot, plan: Plan) -> Basis:
    """Return what a plan is based on.

    Args:
        stored: the pool's settings as they are stored, without those that are given with the plan.
        template: how its workers are started, as it is stored.
        snapshot: what was seen.
        plan: what was decided on it.
    """
    values: dict[str, Any] = {
        "settings": [None if stored is None else asdict(stored), None if template is None else template.as_json()],
        "groups": [_group(group, snapshot) for group in _by_id(snapshot.groups, "group_id")],
        "workers": [_worker(worker, snapshot) for worker in _by_id(snapshot.workers, "worker_id")],
        "adapters": [_adapter(adapter) for adapter in _by_id(snapshot.adapters, "adapter_id")],
        "orders": [plan.desired, orders_of(plan)],
    }
    return Basis(
        version=0 if stored is None else stored.version,
        digests={name: digest(value) for name, value in values.items()},
        counts={name: len(values[name]) for name in ("groups", "workers", "adapters")},
        desired=plan.desired,
    )


def orders_of(plan: Plan) -> dict[str, list[Any]]:
    """Return what a plan would do, as JSON values."""
    found: dict[str, Iterable[Any]]
    found = {"starts": plan.starts, "resizes": plan.resizes, "cancels": plan.cancels, "drains": plan.drains}
    return {name: [asdict(each) for each in orders] for name, orders in found.items()}


def moved(before: Basis, now: Basis) -> str | None:
    """Return what is no longer as it was, in words; None where a plan still holds."""
    if before.version != now.version:
        return f"the settings are of version {now.version}, they were of version {before.version}"
    differing = [part for part in PARTS if before.digests.get(part) != now.digests[part]]
    if not differing:
        return None
    part = differing[0]
    if part == "settings":
        return f"the settings of version {now.version} were changed by hand"
    if part == "orders":
        if before.desired != now.desired:
            return f"the work has changed: it takes {now.desired} workers now, and took {before.desired}"
        return "other workers would be started or taken away now"
    then, there = before.counts.get(part), now.counts[part]
    return f"its {part} are no longer the same: {then} then, {there} now"


def digest(value: object) -> str:
    """Return a digest of a JSON value; the same for the same content in any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _by_id(records: Iterable[Any], name: str) -> list[Any]:
    return sorted(records, key=lambda record: getattr(record, name))


def _group(group: GroupRecord, snapshot: Snapshot) -> list[Any]:
    is_dead = group.group_id in snapshot.dead_groups
    return [group.group_id, group.status, group.target_size, group.adapter_id, group.contacted_at is None, is_dead]


def _worker(worker: PoolWorker, snapshot: Snapshot) -> list[Any]:
    life = (worker.worker_id, worker.incarnation)
    offers = [dict(worker.capabilities), worker.queues, worker.handlers, worker.slots]
    state = [worker.status, life in snapshot.dead_workers, life in snapshot.quarantined]
    return [*life, worker.group_id, *state, *offers]


def _adapter(adapter: AdapterState) -> dict[str, Any]:
    """Return an adapter's state; how many groups of other pools it carries matters only where it has a limit."""
    values = asdict(adapter)
    if adapter.room is None:
        del values["groups"]
    return values
