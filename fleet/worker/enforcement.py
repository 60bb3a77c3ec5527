"""Ending executions from outside: a decision, made again on a stopped process before anything is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet import process
from fleet.clock import Clock
from fleet.worker.protocol import Reason
from fleet.worker.record import Phase, nanoseconds
from fleet.worker.seat import Seat
from fleet.worker.slot import Slot

STOPPING_TIME = 2.0
DRAIN_GRACE = 10.0
WEDGED_AFTER = 60.0
CANCEL_GRACE = 5.0
"""Seconds that a handler has to heed a request to cancel, before its worker is killed."""

_WAITING = ("S", "T", "t")
"""What the main thread does while another one holds the interpreter, or all are stopped; not while it is busy, or waits
for a disk."""

_BETWEEN_TASKS = (Phase.STARTING, Phase.IDLE, Phase.CLAIMING, Phase.RECORDING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a worker must be killed.

    Attributes:
        reason: why.
        seat: the seat of the execution that it is for; None when it is for none, or for all.
    """

    reason: Reason
    seat: int | None = None


def verdict(slot: Slot, now: int, awake: float, lease: float) -> Verdict | None:
    """Return why a worker must be killed now, None to let it live.

    A worker that records what it executed is left alone, whatever the time.

    Args:
        slot: its record.
        now: boot time in nanoseconds.
        awake: seconds since this host last slept: after a suspend, nothing is held against anybody at once.
        lease: seconds.
    """
    executing = False
    for place, seat in enumerate(slot.seats):
        if seat.is_executing:
            executing = True
            reason = _of_execution(seat, now)
            if reason is not None:
                return Verdict(reason, place)
    reason = _while_executing(slot, now, awake, lease) if executing else _between_tasks(slot, now, awake, lease)
    return None if reason is None else Verdict(reason)


def _of_execution(seat: Seat, now: int) -> Reason | None:
    """Return why one execution must end now, by the death of its worker if need be."""
    if 0 < seat.timeout < now - seat.started - seat.grace:
        return Reason.TIMEOUT
    if seat.is_stopped and seat.stop_at <= now - seat.grace:
        return Reason.CLAIM_LOST
    if seat.is_cancelled and seat.cancel_at < now - nanoseconds(CANCEL_GRACE):
        return Reason.CANCELLED
    return None


def _while_executing(slot: Slot, now: int, awake: float, lease: float) -> Reason | None:
    if slot.drain and 0 < slot.drain_deadline < now:
        return Reason.DRAIN_DEADLINE
    if 0 < slot.fence_at < now and awake > lease / 3:
        return Reason.FENCED
    if min(awake, _writing(slot, now)) > lease / 4 and process.state(slot.pid) in _WAITING:
        return Reason.BLOCKING
    return None


def _writing(slot: Slot, now: int) -> float:
    """Return for how many seconds the worker's own thread has had the write lock, as far as it has said."""
    return (now - slot.writes_since) / 1e9 if slot.writes_since else 0.0


def _between_tasks(slot: Slot, now: int, awake: float, lease: float) -> Reason | None:
    if slot.phase not in _BETWEEN_TASKS:
        return None
    if slot.drain and 0 < slot.drain_deadline < now - nanoseconds(DRAIN_GRACE):
        return Reason.DRAIN_DEADLINE
    silent = (now - slot.pulse) / 1e9
    if min(awake, silent) <= lease:
        return None
    # A stopped one is lost to the fleet by then; any other may be starting, or waiting for the database.
    if min(awake, silent) > max(2 * lease, WEDGED_AFTER) or process.state(slot.pid) in ("T", "t"):
        return Reason.WEDGED
    return None


def interruption(slot: Slot) -> Verdict | None:
    """Return the verdict of a second signal: whoever executes is interrupted."""
    return Verdict(Reason.SECOND_SIGNAL) if slot.executing else None


def next_timeout(slot: Slot) -> int | None:
    """Return when the next execution times out for good, in boot nanoseconds; None when none does."""
    ends = (seat.started + seat.timeout + seat.grace for seat in slot.executing if seat.timeout)
    return min(ends, default=None)


def kill_if(pid: int, slot: Slot, judge: Callable[[], Verdict | None], clock: Clock) -> Verdict | None:
    """Kill a worker if the verdict on it stands while it is stopped; return the verdict that was carried out.

    Between looking and killing a worker may have gone on to its next task; stopped, it cannot.

    Args:
        pid: its process.
        slot: its record.
        judge: returns the verdict.
        clock: for the wait.
    """
    before = _judged(slot, judge())
    stopped_before = process.state(pid) in ("T", "t")
    if not stopped_before:
        os.kill(pid, signal.SIGSTOP)
        _await_stop(pid, clock)
    stands = judge()
    if stands is not None and _judged(slot, stands) == before:
        kill_session(pid)
        return stands
    if not stopped_before:
        os.kill(pid, signal.SIGCONT)
    return None


def _judged(slot: Slot, judged: Verdict | None) -> tuple[Any, ...]:
    """Return what a verdict is about, to see whether it still is."""
    if judged is None or judged.seat is None:
        return (judged,)
    return judged, slot.seats[judged.seat].fence


def _await_stop(pid: int, clock: Clock) -> None:
    deadline = clock.boottime() + STOPPING_TIME
    while process.state(pid) not in ("T", "t", "Z", "X", None) and clock.boottime() < deadline:
        clock.sleep(0.0005)


def kill_session(pid: int) -> None:
    """Kill a worker with all that its tasks started and left in its process group; it must not be reaped yet."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
