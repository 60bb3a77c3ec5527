"""A pool with many workers: what a pass reads and decides does not grow where nothing is to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.lanes import Lane, Offer
from fleet.domain.supply import served_by
from fleet.storage.sql import Runner
from tests.domain.test_plan import a_worker
from tests.scaler.world import World, target


def test_a_pass_runs_as_many_statements_whoever_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that finds as many workers as are wanted runs as many statements for 50 of them as for 2."""
    number = 0
    run = Runner._execute

    def counted(runner: Runner, *arguments: Any) -> Any:
        nonlocal number
        number += 1
        return run(runner, *arguments)

    monkeypatch.setattr(Runner, "_execute", counted)
    numbers = []
    for wanted in (2, 50):
        world.run(target(wanted))
        world.come_up()
        world.occupy(sorted(world.ready())[:2])
        world.run()
        number = 0
        assert world.run().rounds[-1].plan.ready == wanted
        numbers.append(number)
    assert numbers[1] <= numbers[0] < 40


def test_offers_alike_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which lanes are served is found once for workers that offer the same, and apart for who has a lane of its own."""
    compared = 0
    serves = Offer.serves

    def counted(offer: Offer, lane: Lane) -> bool:
        nonlocal compared
        compared += 1
        return serves(offer, lane)

    monkeypatch.setattr(Offer, "serves", counted)
    own, shared = Lane(1, "q", "t", {}, "w-3"), Lane(2, "q", "t", {})
    workers = [replace(a_worker(f"w-{number}"), handlers=("t",)) for number in range(50)]
    served = served_by(workers, [own, shared])
    assert served[3] == [0, 1]
    assert served[:3] + served[4:] == [[1]] * 49
    assert compared == 4
