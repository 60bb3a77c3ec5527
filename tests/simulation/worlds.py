"""Scenarios and pools for tests."""

from array import array
from collections.abc import Sequence
from typing import Any

from fleet.domain.snapshot import PoolSettings
from fleet.simulation import Kind, Scenario, Tasks
from fleet.simulation.chances import Chance, constant
from fleet.simulation.loads import gathered, parse_load


def pool(policy: str = "fixed", least: int = 0, most: int | None = None, **settings: Any) -> PoolSettings:
    """Return a pool's settings."""
    return PoolSettings(policy, settings, 1, least, most)


def tasks(*loads: str, seconds: Chance | None = None, until: float = 3600.0, seed: int = 0) -> Tasks:
    """Return the tasks of loads."""
    return gathered([parse_load(load) for load in loads], seconds or constant(1.0), until, seed)


def given(times: Sequence[float], seconds: float = 1.0, kind: Kind | None = None) -> Tasks:
    """Return tasks that arrive at these times."""
    return Tasks((kind or Kind(),), array("d", times), array("B", [0] * len(times)), array("d", [seconds] * len(times)))


def scenario(tasks: Tasks, **values: Any) -> Scenario:
    """Return a scenario."""
    return Scenario(tasks, **values)
