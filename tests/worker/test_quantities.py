"""Quantities are consumed by what runs: which lanes a worker with several seats may claim from, and how many tasks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.lanes import Offer, room_for
from fleet.domain.task import NewTask
from fleet.storage.interfaces import Storage
from fleet.worker.lanes import LearnedLanes
from tests.storage.samples import enqueue

OFFERED = {"gpu": 2.0, "mem": 16.0}


@pytest.mark.parametrize(
    ("requires", "room"),
    [
        ({}, None),
        ({"gpu": 1}, 2),
        ({"gpu": 2}, 1),
        ({"gpu": 3}, 0),
        ({"gpu": 1, "mem": 10}, 1),
        ({"tpu": 1}, 0),
        ({"gpu": 0.1}, 20),
    ],
)
def test_room(requires: dict[str, float], room: int | None) -> None:
    """So many tasks fit as the scarcest quantity allows; without any needs there is no bound."""
    assert room_for(requires, OFFERED) == room


@given(
    requires=st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.1, 0.25, 0.5, 1, 2, 3])),
    left=st.dictionaries(st.sampled_from("ab"), st.floats(0, 10)),
)
def test_what_fits_is_there(requires: dict[str, float], left: dict[str, float]) -> None:
    """So many tasks as there is room for never need more than is left."""
    room = room_for(requires, left)
    if room is not None:
        assert all(quantity * (room - 1e-8) <= left.get(name, 0) for name, quantity in requires.items())


@pytest.mark.parametrize(
    ("left", "served", "limit"),
    [
        ({"gpu": 2.0, "mem": 16.0}, {"plain", "gpu", "both"}, 1),
        ({"gpu": 2.0, "mem": 8.0}, {"plain", "gpu"}, 2),
        ({"gpu": 0.0, "mem": 16.0}, {"plain"}, 8),
    ],
)
def test_a_claim_brings_what_fits(memory: Storage, left: dict[str, float], served: set[str], limit: int) -> None:
    """Lanes that need more than is left are left out, and no mixture of the others' tasks needs more."""
    names = {"plain", "gpu", "both"}
    lanes = LearnedLanes(Offer("w", frozenset(names), (), OFFERED), weighted=False)
    enqueue(
        memory,
        NewTask("plain"),
        NewTask("gpu", requires={"gpu": 1}),
        NewTask("both", requires={"gpu": 1, "mem": 12}),
    )
    lanes.learn(memory.queue)
    by_id = {lane.lane_id: lane.task for lane in memory.queue.lanes(0)}
    claimed, most = lanes.to_claim_within(left, 8)
    assert {by_id[lane[0]] for lane in claimed} == served
    assert most == limit


def test_a_lane_that_is_not_served_needs_nothing(memory: Storage) -> None:
    """Asked for a lane that it does not serve, a worker knows of no needs."""
    lanes = LearnedLanes(Offer("w", frozenset({"t"}), (), {}), weighted=False)
    assert lanes.requires(random.randrange(1, 99)) == {}
