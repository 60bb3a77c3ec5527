"""The measures, by name. Each takes a scale and the contestants, and returns what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.measures import (
    claims,
    commands,
    enqueue,
    growth,
    heartbeats,
    idle,
    latency,
    layers,
    noop,
    pausing,
    policies,
    postgresql_enqueue,
    postgresql_latency,
    postgresql_noop,
    scaler,
    simulation,
    start,
    varied,
)
from benchmarks.outcome import Outcome
from benchmarks.peers.base import Peer
from benchmarks.scale import Scale

Measure = Callable[[Scale, Sequence[Peer]], Outcome]

ALL: dict[str, Measure] = {
    "noop": noop.measure,
    "pausing": pausing.measure,
    "enqueue": enqueue.measure,
    "latency": latency.measure,
    "idle": idle.measure,
    "start": start.measure,
    "claims": claims.measure,
    "scaler": scaler.measure,
    "heartbeats": heartbeats.measure,
    "commands": commands.measure,
    "growth": growth.measure,
    "layers": layers.measure,
    "policies": policies.measure,
    "varied": varied.measure,
    "simulation": simulation.measure,
    "postgresql-noop": postgresql_noop.measure,
    "postgresql-enqueue": postgresql_enqueue.measure,
    "postgresql-latency": postgresql_latency.measure,
}

POSTGRESQL = tuple(name for name in ALL if name.startswith("postgresql"))
"""Those on a server, which have a report of their own."""
