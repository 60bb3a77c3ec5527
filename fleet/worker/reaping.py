"""Processes that ended under a supervisor: its own children, and orphans that it adopts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.process import prctl
from fleet.worker.enforcement import Verdict, kill_session
from fleet.worker.protocol import Death
from fleet.worker.record import now_ns
from fleet.worker.seat import Seat
from fleet.worker.slot import Slot

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        pid: which.
        code: its exit code, None when a signal ended it.
        signal: the signal, None when it exited.
        peak_kb: its largest resident memory in KiB.
    """

    pid: int
    code: int | None
    signal: int | None
    peak_kb: int

    @property
    def manner(self) -> str:
        """How it ended, in words."""
        return f"exited with code {self.code}" if self.signal is None else f"died of signal {self.signal}"


def adopt_orphans(adopting: bool = True) -> None:
    """Become the parent of descendants whose own parent dies (Linux), so that they are reaped; or cease to."""
    prctl(_PR_SET_CHILD_SUBREAPER, int(adopting))


def reap(is_own: Callable[[int], bool]) -> Iterator[Exit]:
    """Yield every child that has ended.

    A child is looked at first and collected by its pid: no exit status is ever taken for another's. What a process of
    the group has left in its process group is ended before its pid becomes free.

    Args:
        is_own: whether a pid is of the group, not an adopted orphan.
    """
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        if is_own(found.si_pid) and os.getpgid(found.si_pid) == found.si_pid:
            kill_session(found.si_pid)
        pid, status, usage = os.wait4(found.si_pid, 0)
        code = os.waitstatus_to_exitcode(status)
        yield Exit(pid, code if code >= 0 else None, -code if code < 0 else None, usage.ru_maxrss)


def autopsy(worker_id: str, slot: Slot, verdict: Verdict, ended: Exit, *, out_of_memory: bool = False) -> Death:
    """Return what is to be written of a worker's death: its record names the one task that it is charged to.

    Of several that were executed at once, only one that was judged for itself is known.

    Args:
        worker_id: the worker.
        slot: its record, left as it was when it died.
        verdict: why it died.
        ended: how its process ended.
        out_of_memory: whether the kernel has killed it for want of memory.
    """
    seat = slot.seats[verdict.seat] if verdict.seat is not None else _only(slot.executing)
    return Death(
        worker_id=worker_id,
        incarnation=slot.incarnation,
        reason=verdict.reason,
        exit_code=ended.code,
        signal=ended.signal,
        peak_kb=ended.peak_kb,
        out_of_memory=out_of_memory,
        beside=max(0, len(slot.executing) - 1),
        **({} if seat is None else _execution(seat)),
    )


def _only(seats: list[Seat]) -> Seat | None:
    return seats[0] if len(seats) == 1 else None


def _execution(seat: Seat) -> dict[str, Any]:
    return {
        "task_id": seat.task_id,
        "token": seat.token,
        "seconds": (now_ns() - seat.started) / 1e9,
        "timeout": seat.timeout / 1e9,
        "retry_in": None if seat.retry_in < 0 else seat.retry_in / 1e9,
    }


def in_words(seats: Sequence[Seat]) -> str:
    """Return what was executed, for a line of the log."""
    if not seats:
        return "no task"
    return f"task {seats[0].task_id}" if len(seats) == 1 else f"{len(seats)} tasks at once"


def about(seats: Sequence[Seat]) -> dict[str, int | None]:
    """Return the field of a line of the log that names the task, where it is about one."""
    return {"task_id": seats[0].task_id if len(seats) == 1 else None}
