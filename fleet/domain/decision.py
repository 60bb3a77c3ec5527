"""The ledger of a pool's decisions, as values; and what a decision was based on, as far as it changes all the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.policies.situation import Situation
from fleet.domain.policies.viewing import situation_of
from fleet.domain.reasons import Reason
from fleet.domain.snapshot import Snapshot
from fleet.domain.supply import supply_of

SAMPLED = 60.0
"""Seconds between two samples of a pool's inputs, at least: they change with every pass."""
MOST_KINDS = 50
"""Kinds of tasks that a sample tells apart; the others are left out, those with most open tasks come first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A row of `scaling_decision`.

    Attributes:
        decision_id: its id; groups that were started for it name it.
        pool: the pool.
        created_at: when it was first taken.
        last_seen_at: when a pass last came to the same.
        repeated: how many passes came to the same after the first.
        scheduler_epoch: the pass that took it first.
        settings_version: the settings that it was based on.
        policy: the policy that advised.
        supply, ready, launching, draining: workers, as counted before it.
        waiting, running: tasks in all queues, as counted by the first pass.
        advised: what the policy said.
        desired: the advice after the clamps.
        reasons: why; of rows that an older release wrote the codes are "".
        actions: what was ordered: lists under `start`, `resize`, `cancel`, `drain`.
        inputs: what changes all the time, as of the moment that its `at` says; None where none was sampled.
    """

    decision_id: int
    pool: str
    created_at: datetime
    last_seen_at: datetime
    repeated: int
    scheduler_epoch: int
    settings_version: int
    policy: str
    supply: int
    ready: int
    launching: int
    draining: int
    waiting: int
    running: int
    advised: int
    desired: int
    reasons: tuple[Reason, ...] = ()
    actions: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] | None = None


def inputs_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return what a decision of a policy that follows the work is based on and what changes all the time, as JSON."""
    return inputs_in(situation_of(snapshot, supply_of(snapshot)), snapshot)


def inputs_in(situation: Situation, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the same of a situation that is there already."""
    kinds = sorted(situation.demand, key=lambda work: (-(work.pending + work.running), work.queue, work.task))
    return {
        "pending": situation.pending,
        "running": situation.running,
        "window": round(snapshot.pace_window, 3),
        "kinds": len(kinds),
        "demand": [
            {
                "queue": work.queue,
                "task": work.task,
                "requires": dict(work.requires),
                "pending": work.pending,
                "running": work.running,
                "seconds": None if work.seconds is None else round(work.seconds, 6),
                "busy": round(work.busy, 3),
                "arrivals": work.arrivals,
            }
            for work in kinds[:MOST_KINDS]
        ],
        "unsatisfiable": sum(work.pending for work in situation.unserved),
        "elsewhere": sum(work.pending + work.running for work, _ in situation.elsewhere),
    }
