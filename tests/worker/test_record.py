"""The cells of shared memory."""

from __future__ import annotations

import pytest

from fleet.worker.board import Board
from fleet.worker.record import Word
from fleet.worker.seat import Seat
from fleet.worker.slot import Slot


@pytest.mark.parametrize("kind", [Board, Seat, Slot])
def test_no_two_words_share_a_cell(kind: type) -> None:
    """Each word of a record has a cell of its own: what is written to one changes no other."""
    positions = [word._position for word in vars(kind).values() if isinstance(word, Word)]
    assert positions
    assert len(set(positions)) == len(positions)
