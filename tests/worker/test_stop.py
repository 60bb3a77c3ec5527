"""When a handler that ends by itself is told to, and by when it must have."""

from __future__ import annotations

import pytest

from fleet.clock import boottime
from fleet.domain.execution import Fence
from fleet.domain.signals import StopReason
from fleet.worker.board import Board
from fleet.worker.enforcement import CANCEL_GRACE, Verdict, verdict
from fleet.worker.orders import Orders
from fleet.worker.protocol import Reason
from fleet.worker.record import nanoseconds, now_ns
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot
from fleet.worker.stop import GRACE, Stop

FENCE = Fence(7, 3)


@pytest.fixture
def slot() -> Slot:
    """The record of a worker that executes one task, without a timeout."""
    found = Board(1).slots[0]
    found.hold([FENCE])
    found.begin(0, started=now_ns(), timeout=0, retry_in=-1, grace=nanoseconds(GRACE))
    return found


def told(slot: Slot) -> Stop | None:
    """Return what the worker's handler is told."""
    return Orders(WorkerSettings("g", "w"), slot, -1, -1).stop(slot.seats[0])


def begun(slot: Slot, ago: float, timeout: float) -> None:
    """Let the task have begun some seconds ago, with a timeout."""
    slot.seats[0].started = now_ns() - nanoseconds(ago)
    slot.seats[0].timeout = nanoseconds(timeout)


@pytest.mark.parametrize(("ago", "over"), [(9.9, False), (10.0, True), (12.0, True)])
def test_a_timeout_is_told_when_it_is_over(slot: Slot, ago: float, over: bool) -> None:
    """At its timeout, not before, a handler is told, and has its grace before its worker is killed."""
    begun(slot, ago, timeout=10.0)
    found = told(slot)
    assert (found is not None) is over
    if found is not None:
        assert (found.reason, found.timeout) == (StopReason.TIMED_OUT, 10.0)
        assert found.by - boottime() == pytest.approx(10.0 + GRACE - ago, abs=0.5)
    assert verdict(slot, now_ns(), 100.0, 20.0) is None
    begun(slot, 10.0 + GRACE + 0.1, timeout=10.0)
    assert verdict(slot, now_ns(), 100.0, 20.0) == Verdict(Reason.TIMEOUT, 0)


@pytest.mark.parametrize(("left", "due"), [(GRACE + 1.0, False), (GRACE, True), (0.5, True)])
def test_a_drain_is_told_shortly_before_its_deadline(slot: Slot, left: float, due: bool) -> None:
    """Of a drain with a deadline a handler is told when no more than its grace is left."""
    slot.drain_deadline = now_ns() + nanoseconds(left)
    assert told(slot) is None
    slot.drain = 1
    found = told(slot)
    assert (found is not None) is due
    if found is not None:
        assert found.reason is StopReason.DRAINING
        assert found.by - boottime() == pytest.approx(left, abs=0.5)


def test_a_drain_without_a_deadline_is_not_told(slot: Slot) -> None:
    """A drain that waits ends nothing."""
    slot.drain = 1
    assert told(slot) is None


def test_a_cancel_is_told_at_once(slot: Slot) -> None:
    """A cancel of this execution is told at once, with its own grace; one of another is not."""
    slot.cancel(Fence(7, 2))
    assert told(slot) is None
    slot.cancel(FENCE)
    found = told(slot)
    assert found is not None
    assert found.reason is StopReason.CANCELLED
    assert found.by - boottime() == pytest.approx(CANCEL_GRACE, abs=0.5)


def test_a_lost_claim_is_told_first(slot: Slot) -> None:
    """That the claim is gone is told before anything else, with the time that ending takes."""
    begun(slot, 20.0, timeout=10.0)
    slot.cancel(FENCE)
    slot.stop(FENCE)
    found = told(slot)
    assert found is not None
    assert found.reason is StopReason.CLAIM_LOST
    assert found.by - boottime() == pytest.approx(GRACE, abs=0.5)
