"""Ending executions from outside: a decision, made again on a stopped process before anything is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from fleet import process
from fleet.clock import Clock
from fleet.worker.protocol import Reason
from fleet.worker.record import Phase, nanoseconds
from fleet.worker.shared import Slot

STOPPING_TIME = 2.0
DRAIN_GRACE = 10.0
WEDGED_AFTER = 60.0
CANCEL_GRACE = 5.0
"""Seconds that a handler has to heed a request to cancel, before its worker is killed."""

_BETWEEN_TASKS = (Phase.STARTING, Phase.IDLE, Phase.CLAIMING, Phase.RECORDING)


def verdict(slot: Slot, now: int, awake: float, lease: float) -> Reason | None:
    """Return why a worker must be killed now, None to let it live.

    A worker that records what it executed is left alone, whatever the time.

    Args:
        slot: its record.
        now: boot time in nanoseconds.
        awake: seconds since this host last slept: after a suspend, nothing is held against anybody at once.
        lease: seconds.
    """
    if slot.phase != Phase.EXECUTING:
        return _between_tasks(slot, now, awake, lease)
    if 0 < slot.timeout < now - slot.started:
        return Reason.TIMEOUT
    if slot.stop_token == slot.token and slot.stop_task == slot.task_id:
        return Reason.CLAIM_LOST
    if slot.is_cancelled and slot.cancel_at < now - nanoseconds(CANCEL_GRACE):
        return Reason.CANCELLED
    if slot.drain and 0 < slot.drain_deadline < now:
        return Reason.DRAIN_DEADLINE
    if 0 < slot.fence_at < now and awake > lease / 3:
        return Reason.FENCED
    return None


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


def interruption(slot: Slot) -> Reason | None:
    """Return the verdict of a second signal: whoever executes is interrupted."""
    return Reason.SECOND_SIGNAL if slot.phase == Phase.EXECUTING else None


def next_timeout(slot: Slot) -> int | None:
    """Return when the present execution times out, in boot nanoseconds; None when it does not."""
    if slot.phase != Phase.EXECUTING or slot.timeout == 0:
        return None
    return slot.started + slot.timeout


def kill_if(pid: int, slot: Slot, judge: Callable[[], Reason | None], clock: Clock) -> Reason | None:
    """Kill a worker if the verdict on it stands while it is stopped; return the verdict that was carried out.

    Between looking and killing a worker may have gone on to its next task; stopped, it cannot.

    Args:
        pid: its process.
        slot: its record.
        judge: returns the verdict.
        clock: for the wait.
    """
    before = _execution(slot)
    stopped_before = process.state(pid) in ("T", "t")
    if not stopped_before:
        os.kill(pid, signal.SIGSTOP)
        _await_stop(pid, clock)
    reason = judge() if _execution(slot) == before else None
    if reason is not None:
        kill_session(pid)
    elif not stopped_before:
        os.kill(pid, signal.SIGCONT)
    return reason


def _execution(slot: Slot) -> tuple[int, int, int]:
    return slot.phase, slot.task_id, slot.token


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
