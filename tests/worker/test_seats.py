"""Several executions of one worker, as shared memory shows them, and the verdicts on each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from fleet import process
from fleet.domain.execution import Fence
from fleet.domain.signals import StopReason
from fleet.worker.board import Board
from fleet.worker.enforcement import CANCEL_GRACE, Verdict, next_timeout, verdict
from fleet.worker.orders import Orders
from fleet.worker.protocol import Reason
from fleet.worker.reaping import Exit, autopsy
from fleet.worker.record import Phase, nanoseconds, now_ns
from fleet.worker.seat import Seat
from fleet.worker.settings import WorkerSettings
from fleet.worker.slot import Slot
from fleet.worker.stop import Stop
from tests.processes.running import wait_until

LEASE = 20.0
MOMENT = 1
GRACE = 5_000_000_000
DIED = Exit(pid=1, code=None, signal=11, peak_kb=4096)
SETTINGS = WorkerSettings(group_id="g", worker_id="w", concurrency=3)


@pytest.fixture
def slot() -> Slot:
    """The record of a worker with three seats that executes tasks 7 and 8."""
    found = Board(1, 3).slots[0]
    for seat in found.take_seats([Fence(7, 3), Fence(8, 1)]):
        seat.begin(started=now_ns(), timeout=0, retry_in=0, grace=GRACE)
    return found


def judge(slot: Slot, now: int) -> Verdict | None:
    """Return the verdict on a slot, on a host that has been awake for long."""
    return verdict(slot, now, 1e6, LEASE)


def begin(slot: Slot, fence: Fence) -> Seat:
    """Begin another execution."""
    [seat] = slot.take_seats([fence])
    seat.begin(started=now_ns(), timeout=0, retry_in=-1)
    return seat


def test_seats_are_taken_and_freed(slot: Slot) -> None:
    """A claim takes a free seat and keeps it until it is recorded, ended or not; what is freed can be taken again."""
    second = slot.seats[1]
    second.end()
    [third] = slot.take_seats([Fence(9, 1)])
    reading = slot.read()
    assert reading is not None
    assert reading.held == (Fence(7, 3), Fence(8, 1), Fence(9, 1))
    assert [one.fence for one in reading.running] == [Fence(7, 3)]
    slot.free_seats([Fence(8, 1), Fence(9, 2)])
    assert [seat.is_taken for seat in slot.seats] == [True, False, True]
    assert slot.seat_of(Fence(9, 1)) is third
    assert slot.take_seats([Fence(10, 1)]) == [second]


def test_records_of_workers_do_not_touch() -> None:
    """Seats of one worker are not those of another, and a record that is cleared leaves the others alone."""
    board = Board(2, 40)
    for number, slot in enumerate(board.slots):
        slot.take_seats([Fence(100 * (number + 1) + place, 1) for place in range(40)])
        assert slot.put_out(b"x" * 60_000)
        slot.set_incarnation(f"{number + 1:032x}")
        slot.take_seats([Fence(100 * (number + 1) + place, 1) for place in range(40)])
    board.slots[0].clear()
    reading = board.slots[1].read()
    assert reading is not None
    assert reading.incarnation == f"{2:032x}"
    assert reading.held == tuple(Fence(200 + place, 1) for place in range(40))
    assert not any(seat.is_taken for seat in board.slots[0].seats)


def test_a_timeout_names_its_execution(slot: Slot) -> None:
    """Only after the grace in which its worker may end it itself is an execution past its timeout killed for."""
    seat = slot.seats[1]
    seat.timeout = 10 * MOMENT
    end = seat.started + 10 * MOMENT + GRACE
    assert next_timeout(slot) == end
    assert judge(slot, end) is None
    assert judge(slot, end + MOMENT) == Verdict(Reason.TIMEOUT, 1)


def test_a_lost_claim_has_its_grace(slot: Slot) -> None:
    """A lost claim kills at once where there is no grace, else at its end; said again it keeps its time."""
    first, second = slot.seats[:2]
    first.stop()
    at = first.stop_at
    first.stop()
    assert first.stop_at == at
    assert judge(slot, at + GRACE - MOMENT) is None
    assert judge(slot, at + GRACE) == Verdict(Reason.CLAIM_LOST, 0)
    first.end()
    second.grace = 0
    second.stop()
    assert judge(slot, second.stop_at) == Verdict(Reason.CLAIM_LOST, 1)


def test_a_stop_does_not_reach_the_next_claim(slot: Slot) -> None:
    """What was asked of an execution says nothing about the next one in its seat."""
    slot.stop(Fence(7, 3))
    slot.cancel(Fence(8, 1))
    slot.free_seats([Fence(7, 3), Fence(8, 1)])
    first, second = slot.take_seats([Fence(7, 4), Fence(8, 2)])
    assert [seat.is_stopped for seat in (first, second)] == [False, False]
    assert [seat.is_cancelled for seat in (first, second)] == [False, False]


def test_of_several_nobody_is_blamed(slot: Slot) -> None:
    """A death is charged to nobody while several tasks were executed, and to the one that was alone."""
    death = autopsy("w", slot, Verdict(Reason.CRASH), DIED)
    assert (death.task_id, death.token, death.beside) == (0, 0, 1)
    slot.seats[0].end()
    alone = autopsy("w", slot, Verdict(Reason.CRASH), DIED)
    assert (alone.task_id, alone.token, alone.beside) == (8, 1, 0)


def test_who_was_judged_is_blamed(slot: Slot) -> None:
    """A death by a verdict on one execution is about that one, whatever ran beside it."""
    slot.seats[1].retry_in = -1
    death = autopsy("w", slot, Verdict(Reason.TIMEOUT, 1), DIED)
    assert (death.task_id, death.token, death.beside, death.retry_in) == (8, 1, 1, None)


def test_a_worker_with_free_seats_is_not_idle(slot: Slot) -> None:
    """A main loop that is silent for long is no reason to kill while executions go on, and is one when none does."""
    late = slot.pulse + nanoseconds(1e5)
    assert judge(slot, late) is None
    slot.seats[0].end()
    slot.seats[1].end()
    slot.phase = 2
    assert judge(slot, late) == Verdict(Reason.WEDGED)


@pytest.fixture
def waiting() -> Iterator[int]:
    """The pid of a process that waits, as a main thread does while another one holds the interpreter."""
    child = subprocess.Popen(["sleep", "600"])
    try:
        wait_until(lambda: process.state(child.pid) == "S", "the process waits")
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_who_keeps_the_write_lock_while_it_executes_is_killed(slot: Slot, waiting: int) -> None:
    """A worker whose main thread waits with the write lock for a quarter of a lease is killed while it executes; not
    before, not while that thread is busy, and not when nothing else runs in the process (LK10)."""
    slot.pid = waiting
    slot.writes(True)
    due = slot.writes_since + nanoseconds(LEASE / 4)
    assert judge(slot, due) is None
    assert judge(slot, due + MOMENT) == Verdict(Reason.BLOCKING)
    assert verdict(slot, due + MOMENT, LEASE / 4, LEASE) is None, "the host has just slept"
    slot.pid = os.getpid()
    assert judge(slot, due + MOMENT) is None, "the main thread is busy"
    slot.pid = waiting
    slot.writes(False)
    assert judge(slot, due + MOMENT) is None
    slot.writes(True)
    for seat in slot.seats[:2]:
        seat.end()
    slot.enters(Phase.RECORDING)
    assert judge(slot, slot.writes_since + nanoseconds(LEASE / 2)) is None


@pytest.mark.parametrize(("before", "due"), [(6.0, False), (4.5, True)])
def test_a_drain_asks_first(slot: Slot, before: float, due: bool) -> None:
    """A drain with a deadline asks at once, and ends what can be ended from within its grace before the deadline."""
    orders = Orders(SETTINGS, slot, -1, -1)
    seat = slot.seats[0]
    assert orders.stop_reason(seat) is None
    slot.drain = 1
    assert orders.stop_reason(seat) is None
    slot.drain_deadline = now_ns() + nanoseconds(before)
    assert orders.stop_reason(seat) is StopReason.DRAINING
    assert orders.stop(seat) == (Stop(StopReason.DRAINING, slot.drain_deadline / 1e9) if due else None)


def test_why_an_execution_is_to_stop(slot: Slot) -> None:
    """Each execution has its own reason to stop, and what is asked of one says nothing to the other."""
    orders = Orders(SETTINGS, slot, -1, -1)
    first, second = slot.seats[:2]
    slot.cancel(Fence(7, 3))
    slot.stop(Fence(8, 1))
    assert orders.stop(first) == Stop(StopReason.CANCELLED, first.cancel_at / 1e9 + CANCEL_GRACE)
    assert orders.stop(second) == Stop(StopReason.CLAIM_LOST, (second.stop_at + GRACE) / 1e9)
    third = begin(slot, Fence(9, 1))
    assert orders.stop_reason(third) is None
    third.timeout = 1_000
    ends = third.started + 1_000
    assert orders.stop(third) == Stop(StopReason.TIMED_OUT, ends / 1e9, timeout=1e-6)


def test_nothing_is_executed_where_nobody_is(slot: Slot) -> None:
    """When a process is gone its record says so of every seat: nobody waits for it, and no timeout of it is due."""
    slot.seats[1].timeout = MOMENT
    slot.vacate()
    assert slot.executing == []
    assert next_timeout(slot) is None
    reading = slot.read()
    assert reading is not None
    assert (reading.held, reading.is_registered) == ((), False)
