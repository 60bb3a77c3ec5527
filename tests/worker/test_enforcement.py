"""When a worker is killed."""

from __future__ import annotations

import pytest

from fleet.domain.execution import Fence
from fleet.worker.board import Board
from fleet.worker.enforcement import CANCEL_GRACE, verdict
from fleet.worker.protocol import Reason
from fleet.worker.record import nanoseconds, now_ns
from fleet.worker.slot import Slot

LEASE = 20.0
MOMENT = 1
"""Nanosecond: a threshold is tested just before, at, and just after."""


@pytest.fixture
def slot() -> Slot:
    """The record of a worker that executes claim 3 of task 7, and holds claim 1 of task 8 behind it."""
    found = Board(1).slots[0]
    found.hold([Fence(7, 3), Fence(8, 1)])
    assert found.begin(0, started=now_ns(), timeout=0, retry_in=0)
    return found


def judge(slot: Slot, now: int) -> Reason | None:
    """Return the verdict on a slot, on a host that has been awake for long."""
    found = verdict(slot, now, 1e6, LEASE)
    return found and found.reason


def test_a_cancel_has_its_grace(slot: Slot) -> None:
    """Whoever goes on when the grace after a cancel is over is killed, and not before."""
    slot.cancel(Fence(7, 3))
    end = slot.seats[0].cancel_at + nanoseconds(CANCEL_GRACE)
    assert judge(slot, end - MOMENT) is None
    assert judge(slot, end) is None
    assert judge(slot, end + MOMENT) is Reason.CANCELLED


def test_a_cancel_asked_again_keeps_its_time(slot: Slot) -> None:
    """Each look finds the request again; the grace counts from the first."""
    slot.cancel(Fence(7, 3))
    first = slot.seats[0].cancel_at
    slot.cancel(Fence(7, 3))
    assert slot.seats[0].cancel_at == first


@pytest.mark.parametrize("other", [Fence(7, 2), Fence(8, 1)])
def test_a_cancel_of_another_claim_hits_nobody(slot: Slot, other: Fence) -> None:
    """A request about an earlier claim, or about another task, does not touch what is executed now."""
    slot.cancel(other)
    assert not slot.seats[0].is_cancelled
    assert judge(slot, slot.seats[0].cancel_at + nanoseconds(2 * CANCEL_GRACE)) is None


def test_a_cancel_does_not_reach_the_next_task(slot: Slot) -> None:
    """A handler that ended in time takes its request with it: the next task of its worker is not killed for it."""
    slot.cancel(Fence(7, 3))
    late = slot.seats[0].cancel_at + nanoseconds(2 * CANCEL_GRACE)
    slot.end_of_execution(now_ns())
    assert judge(slot, late) is None
    assert slot.begin(1, started=late, timeout=0, retry_in=0)
    assert judge(slot, late + MOMENT) is None


def test_a_timeout_comes_before_a_cancel(slot: Slot) -> None:
    """What is past its timeout is ended for that: the row says what happened."""
    slot.cancel(Fence(7, 3))
    slot.seats[0].timeout = 1
    assert judge(slot, slot.seats[0].cancel_at + nanoseconds(2 * CANCEL_GRACE)) is Reason.TIMEOUT
