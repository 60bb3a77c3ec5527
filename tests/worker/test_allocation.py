"""How a worker heeds what its pool says of the spreading of claims."""

from __future__ import annotations

import pytest

from fleet.clock import ManualClock
from fleet.domain.spreading import BY_RANK_EVERY, CAPABILITY, EVEN_LOAD, PULLED, Allocation
from fleet.storage.interfaces import Storage
from fleet.worker.board import Board
from fleet.worker.membership import Membership
from tests.worker.desk import SETTINGS


@pytest.mark.parametrize("said", [Allocation(EVEN_LOAD, 0.0), Allocation(CAPABILITY, 2.5), PULLED])
def test_the_board_tells_what_the_keeper_learned(said: Allocation) -> None:
    """What the keeper writes every process of the group reads, through its own mapping; before that, a pool pulls."""
    written = Board(2)
    read = Board(2, fd=written.fd)
    assert read.allocation == PULLED
    written.allocation = said
    assert read.allocation == said


def test_a_change_is_heeded_by_the_next_claim(memory: Storage) -> None:
    """The worker claims as its pool says at that moment, in the same life; what a pool that pulls has no need of is not
    carried along."""
    board = Board(1)
    member = Membership(SETTINGS, 0, board.slots[0], memory, ["t"], ManualClock(), lambda: board.allocation)
    first = member.claiming()
    assert first.spreading is None
    board.allocation = Allocation(EVEN_LOAD)
    second = member.claiming()
    assert (second.worker_id, second.incarnation) == (first.worker_id, first.incarnation)
    assert second.spreading is not None
    assert (second.spreading.allocation, second.spreading.pool) == (Allocation(EVEN_LOAD), "default")
    board.allocation = PULLED
    assert member.claiming() == first


def test_some_claims_go_by_rank_alone(memory: Storage) -> None:
    """One claim in ten takes what is next, however badly it matches."""
    said = Allocation(CAPABILITY)
    member = Membership(SETTINGS, 0, Board(1).slots[0], memory, ["t"], ManualClock(), lambda: said)
    spreadings = [member.claiming().spreading for _ in range(3 * BY_RANK_EVERY)]
    assert sum(each is not None and each.by_rank for each in spreadings) == 3
