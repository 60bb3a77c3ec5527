"""What a simulated pass sees and decides is what a real one does on a store in which the same happens."""

from __future__ import annotations

from array import array

import pytest

from fleet.clock import ManualClock
from fleet.domain.adapters import Limits
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings
from fleet.simulation import Kind, Place, Scenario, Tasks, run
from fleet.simulation.chances import constant
from fleet.simulation.passes import Passes
from fleet.storage.interfaces import Storage
from tests.scaler.world import ADAPTER, World
from tests.simulation.playing import Player
from tests.simulation.worlds import pool


def simulated(scenario: Scenario, settings: PoolSettings) -> dict[float, Plan]:
    """Return what simulated passes decided, by their times; those that could change nothing are left out."""
    plans: dict[float, Plan] = {}
    decided = Passes.run

    def noting(self: Passes) -> Plan:
        plan = plans[self._fleet.now] = decided(self)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Passes, "run", noting)
        run(scenario, settings)
    return plans


def seen(plan: Plan) -> tuple[object, ...]:
    """Return what both must agree on: what was seen, what was decided, and why in words."""
    numbers = (plan.waiting, plan.running, plan.supply, plan.launching, plan.draining, plan.advised, plan.desired)
    return (*numbers, [reason.text for reason in plan.reasons])


def waves() -> list[float]:
    """Return arrivals: some nearly at once, some one by one, a long pause in which nothing is left to do, and more."""
    waves = [(0.0, 12, 0.001), (19.5, 30, 0.001), (60.0, 60, 1.5), (399.5, 25, 0.001), (4_500.0, 20, 0.001)]
    return [start + number * apart for start, many, apart in waves for number in range(many)]


def world_of(*kinds: Kind, every: float) -> Scenario:
    """Return a scenario in which tasks of these kinds come in turn, and take between half a second and 3.5 s."""
    times = waves()
    return Scenario(
        Tasks(
            kinds,
            array("d", times),
            array("B", [number % len(kinds) for number in range(len(times))]),
            array("d", [0.5 + 0.75 * (number % 5) for number in range(len(times))]),
        ),
        places=(Place(ADAPTER, Limits(base_capabilities={"disk": 1}), boot=constant(3.0)),),
        every=every,
        until=5_000.0,
    )


ONE = Kind("fleet.noop")
TWO = (Kind("fleet.noop"), Kind("fleet.echo"))
LANES = (Kind("fleet.noop"), Kind("fleet.noop", {"disk": 1}), Kind("fleet.echo"))


@pytest.mark.parametrize(
    ("settings", "scenario"),
    [
        (pool("drain_time", most=20), world_of(ONE, every=5)),
        (pool("drain_time", stabilization_window=0, spare="25%"), world_of(ONE, every=20)),
        (pool("drain_time", least=2, scale_down_cooldown=90), world_of(*TWO, every=20)),
        (pool("drain_time", drain_time=30), world_of(*LANES, every=10)),
        (pool("vanilla", upper_task_ratio=2, lower_task_ratio=0.5), world_of(ONE, every=20)),
        (pool("capability", least=1), world_of(*LANES, every=20)),
        (pool("threshold", scale_up_queue_threshold=2), world_of(ONE, every=20)),
    ],
    ids=lambda value: value.policy if isinstance(value, PoolSettings) else f"{len(value.tasks.kinds)}-lanes",
)
def test_decisions_agree_pass_by_pass(
    settings: PoolSettings, scenario: Scenario, clocked: Storage, clock: ManualClock
) -> None:
    """On the same tasks every simulated pass decides what a real pass on a store decides, for the same reasons."""
    virtual = simulated(scenario, settings)
    real = Player(World(clocked, clock), scenario, settings).play(virtual)
    for (time, one), other in zip(virtual.items(), real, strict=True):
        assert seen(one) == seen(other), f"the pass at {time:g} s"
