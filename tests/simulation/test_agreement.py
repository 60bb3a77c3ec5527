"""What a simulated pass sees and decides is what a real one does on a store in which the same happens."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from fleet.clock import ManualClock
from fleet.domain.plan import Plan
from fleet.domain.snapshot import PoolSettings
from fleet.simulation import Kind, Place, Scenario, Tasks, run
from fleet.simulation.chances import constant
from fleet.simulation.passes import Passes
from fleet.storage.interfaces import Storage
from tests.scaler.world import ADAPTER, World
from tests.simulation.playing import HANDLER, Player
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
    """Return arrivals: some at once, a few one by one, a long pause in which nothing is left to do, and more."""
    steady = [60.0 + 1.5 * number for number in range(60)]
    return sorted([*[0.0] * 12, *[20.25] * 30, *steady, *[400.0] * 25, *[4_500.0] * 20])


SPAN = 5_000.0
SCENARIO = Scenario(
    Tasks(
        (Kind(HANDLER),),
        array("d", waves()),
        array("B", [0] * len(waves())),
        array("d", [0.5 + 0.75 * (number % 5) for number in range(len(waves()))]),
    ),
    places=(Place(ADAPTER, boot=constant(3.0)),),
    until=SPAN,
)


@pytest.mark.parametrize("every", [5.0, 20.0])
@pytest.mark.parametrize(
    "settings",
    [
        pool("drain_time", most=20),
        pool("drain_time", stabilization_window=0, spare="25%"),
        pool("vanilla", upper_task_ratio=2, lower_task_ratio=0.5),
        pool("capability", least=1),
        pool("threshold", scale_up_queue_threshold=2),
    ],
    ids=lambda settings: settings.policy,
)
def test_decisions_agree_pass_by_pass(
    every: float, settings: PoolSettings, clocked: Storage, clock: ManualClock
) -> None:
    """On the same tasks every simulated pass decides what a real pass on a store decides, for the same reasons."""
    scenario = replace(SCENARIO, every=every)
    virtual = simulated(scenario, settings)
    real = Player(World(clocked, clock), scenario, settings).play(virtual)
    for (time, one), other in zip(virtual.items(), real, strict=True):
        assert seen(one) == seen(other), f"the pass at {time:g} s"
